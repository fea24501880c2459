package node

import "testing"

// TestStanding: one that was removed is told so as soon as it is out of the metadata group, whatever groups still
// hold it, for it might lead one of them; any other one only counts as out when it is in none.
func TestStanding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		leaves bool
		in     []uint32
		want   string
	}{
		{false, nil, isOut},
		{false, []uint32{0, 1}, isIn},
		{false, []uint32{1}, isIn},
		{true, []uint32{0, 1}, isIn},
		{true, []uint32{0}, isIn},
		{true, []uint32{1, 2}, isRemoved},
		{true, nil, isRemoved},
	} {
		if got := standing(c.leaves, c.in); got != c.want {
			t.Errorf("leaves %t, in groups %v: %s, want %s", c.leaves, c.in, got, c.want)
		}
	}
}

func TestReasonsAreToldApart(t *testing.T) {
	t.Parallel()
	first := withoutDigits("n4/a is not a voter yet: it is 83722 entries behind")
	next := "n4/a is not a voter yet: it is 9 entries behind"
	if first != withoutDigits(next) {
		t.Errorf("%q and %q are two reasons", first, withoutDigits(next))
	}
	if other := withoutDigits("n4/a is not a voter yet: it is receiving a snapshot"); other == first {
		t.Errorf("%q is the same reason", other)
	}
}
