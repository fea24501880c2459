package main

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	tests := []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{7}, spread{1, 7, 7, 7}},
		{[]float64{9, 1}, spread{2, 5, 1, 9}},
		{[]float64{9, 1, 2}, spread{3, 2, 1, 9}},
		{[]float64{4, 1, 3, 2}, spread{4, 2.5, 1, 4}},
	}
	for _, tt := range tests {
		given := append([]float64{}, tt.values...)
		if diff := cmp.Diff(tt.want, spreadOf(tt.values), cmp.AllowUnexported(spread{})); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.values, diff)
		}
		if diff := cmp.Diff(given, append([]float64{}, tt.values...)); diff != "" {
			t.Errorf("the values were changed:\n%s", diff)
		}
	}
}

func TestRatio(t *testing.T) {
	t.Parallel()
	ours := series{1: 10, 2: 30, 3: 20, 4: 5}
	tests := []struct {
		name  string
		other series
		want  spread
	}{
		// Of the medians it would be 17.5 / 10: rounds are compared with themselves.
		{"by round", series{1: 10, 2: 10, 3: 10, 4: 10}, spread{4, 1.5, 0.5, 3}},
		{"common rounds only", series{2: 10, 3: 10, 5: 1}, spread{2, 2.5, 2, 3}},
		{"without zeros", series{1: 0, 2: 15}, spread{1, 2, 2, 2}},
		{"nothing in common", series{7: 1}, spread{}},
		{"nothing", nil, spread{}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, ours.ratioTo(tt.other), cmp.AllowUnexported(spread{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if got := (series{1: 0}).ratioTo(series{1: 0}); got.n != 0 || math.IsNaN(got.median) {
		t.Errorf("0 to 0 is %+v, want nothing", got)
	}
}
