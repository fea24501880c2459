package clock

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootIDFile holds a random id that the kernel makes at each boot (random(4)).
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// Boottime returns CLOCK_BOOTTIME: time since boot that also runs while the
// machine is suspended, which Go's monotonic clock does not. The kernel has the
// clock since 2.6.39; without it the result is 0.
func Boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// BootID returns the id of this boot of the machine.
func BootID() (string, error) {
	b, err := os.ReadFile(bootIDFile)
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
