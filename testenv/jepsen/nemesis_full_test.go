package jepsen

import "testing"

// TestAFollowersFullDiskIsNoMatter: to nobody who publishes, neither by a refusal nor by a wait.
func TestAFollowersFullDiskIsNoMatter(t *testing.T) {
	t.Parallel()
	const refusal = "nats: API error: code=503 err_code=10023 description=insufficient resources: not stored"
	for name, tt := range map[string]struct {
		refused Moment // when it was said
		silence Moment
		wrong   int
	}{
		"all acked":        {wrong: 0},
		"refused":          {refused: 5 * second, wrong: 1},
		"refused, earlier": {refused: second, wrong: 0},
		"silence":          {silence: stillWithin, wrong: 1},
	} {
		h := newHistory()
		h.start = h.start.Add(-stillWithin - 10*second)
		for at := second; at < h.now(); at += second {
			if at < 4*second || at > 4*second+tt.silence {
				h.publish(Publish{Return: at, Outcome: Acked})
			}
		}
		if tt.refused > 0 {
			h.publish(Publish{Return: tt.refused, Outcome: Refused, Error: refusal})
		}
		w := &world{c: &Cluster{Kind: Holdfast}, h: h, say: t.Logf}
		w.unmoved(2 * second)
		if len(w.found) != tt.wrong {
			t.Errorf("%s: %q", name, w.found)
		}
	}
}
