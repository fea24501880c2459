package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"strconv"
	"strings"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// SnapshotMeta says what a snapshot of a group stands for: every entry up to
// Index. Conf is the group's configuration at that point, opaque here, written
// by the entry ConfIndex.
type SnapshotMeta struct {
	Index, Term uint64
	ConfIndex   uint64
	Conf        []byte
}

// Pointer is the content of the pointer file: the database directory in force
// and the newest snapshot. It is the only commit point of snapshots.
type Pointer struct {
	// DB is the name of the database directory within the group's directory.
	DB string
	// Snapshot has Index 0 before the first one.
	Snapshot SnapshotMeta
	// Installed: the snapshot came from another replica, so the local log may end
	// below it or disagree with it. After a local one it may not.
	Installed bool

	creating bool // the database is not complete yet: nothing was ever applied
}

const (
	pointerFile    = "POINTER"
	pointerMagic   = "HFPT"
	pointerVersion = 1

	flagInstalled = 1 << 0
	flagCreating  = 1 << 1

	dbPrefix  = "db-"
	outPrefix = "out-"
)

// castagnoliSum is the checksum of every file of this package.
func castagnoliSum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func marshalPointer(p *Pointer) []byte {
	dst := []byte(pointerMagic)
	dst = binary.BigEndian.AppendUint32(dst, pointerVersion)
	var flags uint32
	if p.Installed {
		flags |= flagInstalled
	}
	if p.creating {
		flags |= flagCreating
	}
	dst = binary.BigEndian.AppendUint32(dst, flags)
	dst = binary.BigEndian.AppendUint64(dst, p.Snapshot.Index)
	dst = binary.BigEndian.AppendUint64(dst, p.Snapshot.Term)
	dst = binary.BigEndian.AppendUint64(dst, p.Snapshot.ConfIndex)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(p.Snapshot.Conf)))
	dst = append(dst, p.Snapshot.Conf...)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(p.DB)))
	dst = append(dst, p.DB...)
	return binary.BigEndian.AppendUint32(dst, castagnoliSum(dst))
}

const pointerFixed = 4 + 4 + 4 + 3*8 + 4 + 2 + 4

// parsePointer reads what marshalPointer wrote. Anything that does not verify is
// record.ErrDamaged, a version of another build is record.ErrFormat.
func parsePointer(b []byte) (Pointer, error) {
	if len(b) < pointerFixed || string(b[:4]) != pointerMagic {
		return Pointer{}, fmt.Errorf("%w: %d bytes are no pointer file", record.ErrDamaged, len(b))
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if castagnoliSum(body) != sum {
		return Pointer{}, fmt.Errorf("%w: checksum mismatch", record.ErrDamaged)
	}
	if v := binary.BigEndian.Uint32(b[4:]); v != pointerVersion {
		return Pointer{}, fmt.Errorf("%w: pointer version %d, this build knows %d",
			record.ErrFormat, v, pointerVersion)
	}
	flags := binary.BigEndian.Uint32(b[8:])
	if flags&^(flagInstalled|flagCreating) != 0 {
		return Pointer{}, fmt.Errorf("%w: unknown pointer flags %#x", record.ErrFormat, flags)
	}
	p := Pointer{Installed: flags&flagInstalled != 0, creating: flags&flagCreating != 0}
	p.Snapshot.Index = binary.BigEndian.Uint64(b[12:])
	p.Snapshot.Term = binary.BigEndian.Uint64(b[20:])
	p.Snapshot.ConfIndex = binary.BigEndian.Uint64(b[28:])
	n := uint64(binary.BigEndian.Uint32(b[36:]))
	rest := body[40:]
	if uint64(len(rest)) < n+2 {
		return Pointer{}, fmt.Errorf("%w: configuration of %d bytes in a pointer of %d",
			record.ErrDamaged, n, len(b))
	}
	if n > 0 {
		p.Snapshot.Conf = append([]byte(nil), rest[:n]...)
	}
	name := rest[n+2:]
	if len(name) != int(binary.BigEndian.Uint16(rest[n:])) {
		return Pointer{}, fmt.Errorf("%w: directory name of %d bytes", record.ErrDamaged, len(name))
	}
	p.DB = string(name)
	if _, ok := generation(p.DB, dbPrefix); !ok {
		return Pointer{}, fmt.Errorf("%w: database directory named %q", record.ErrDamaged, p.DB)
	}
	return p, nil
}

// readPointer returns the pointer of a group's directory; ok says that there is one.
func readPointer(fsys FS, dir string) (p Pointer, ok bool, err error) {
	path := fsys.PathJoin(dir, pointerFile)
	b, err := readFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return Pointer{}, false, nil
	}
	if err != nil {
		return Pointer{}, false, fmt.Errorf("read %s: %w", path, err)
	}
	p, err = parsePointer(b)
	if err != nil {
		return Pointer{}, false, &record.FileError{File: path, Cause: fmt.Errorf("%s: %w", path, err)}
	}
	return p, true, nil
}

// InForce returns the name of the database directory that the pointer file of a state
// names. An error wraps record.ErrDamaged if that file does not verify, record.ErrNotFound
// if there is none.
func InForce(fsys FS, dir string) (string, error) {
	p, ok, err := readPointer(fsys, dir)
	if err == nil && !ok {
		err = fmt.Errorf("%s: %w", fsys.PathJoin(dir, pointerFile), record.ErrNotFound)
	}
	return p.DB, err
}

func writePointer(fsys FS, dir string, p *Pointer) error {
	return replaceFile(fsys, dir, pointerFile, marshalPointer(p))
}

// generation reads the number of a directory named prefix plus a decimal number.
func generation(name, prefix string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == digits
}

func dirName(prefix string, n uint64) string { return prefix + strconv.FormatUint(n, 10) }
