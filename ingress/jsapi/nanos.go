package jsapi

import (
	"math"
	"time"
)

// UnixNano is t as nanoseconds since 1970, the nearest one that there is for times
// before the year 1678 and after 2262: what a client means by such a time is "ever"
// or "never".
func UnixNano(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}
