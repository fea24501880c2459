package jsapi

import (
	"math"
	"testing"
	"time"
)

func TestUnixNano(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		"1970-01-01T00:00:01Z":           1e9,
		"9999-12-31T00:00:00Z":           math.MaxInt64,
		"0001-01-01T00:00:00Z":           math.MinInt64,
		"2262-04-11T23:47:16.854775807Z": math.MaxInt64,
		"2262-04-11T23:47:16.854775806Z": math.MaxInt64 - 1,
		"2262-04-11T23:47:16.854775808Z": math.MaxInt64,
		"1677-09-21T00:12:43.145224192Z": math.MinInt64,
		"1677-09-21T00:12:43.145224191Z": math.MinInt64,
	} {
		at, err := time.Parse(time.RFC3339Nano, in)
		if err != nil {
			t.Fatal(err)
		}
		if got := UnixNano(at); got != want {
			t.Errorf("%s: %d, want %d", in, got, want)
		}
	}
}
