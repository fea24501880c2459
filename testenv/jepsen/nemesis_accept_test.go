package jepsen

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestMetricsTellTheClocks(t *testing.T) {
	t.Parallel()
	clocks := func(behinds, waits []float64) string {
		var b strings.Builder
		for _, m := range []struct {
			name   string
			values []float64
		}{{behindMetric, behinds}, {waitMetric, waits}} {
			fmt.Fprintf(&b, "# HELP %s of a group.\n", m.name)
			for group, v := range m.values {
				fmt.Fprintf(&b, "%s{group=\"%d\"} %v\n", m.name, group, v)
			}
		}
		return b.String()
	}
	for _, tt := range []struct {
		name, metrics, want string
	}{
		{"as they are", clocks([]float64{120.5, 119}, []float64{0, 0}), ""},
		{"one is not behind", clocks([]float64{120, 0}, []float64{0, 0}), "behind by 0s, want 2m0s"},
		{"ahead", clocks([]float64{-120, 120}, []float64{0, 0}), "behind by -2m0s"},
		{"one waits", clocks([]float64{120, 120}, []float64{0, 599}), "for 9m59s"},
		{"one group", clocks([]float64{120}, []float64{0}), "1 groups tell " + behindMetric},
		{"no waits", clocks([]float64{120, 120}, nil), "0 groups tell " + waitMetric},
		{"no number", clocks([]float64{120, 120}, []float64{0, 0}) + behindMetric + "{group=\"2\"} many\n", "many"},
	} {
		err := tells(tt.metrics, 2*time.Minute)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
