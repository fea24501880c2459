package replication

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strings"

	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// makeDirs makes dir and its missing parents, each durably.
func makeDirs(fsys storage.FS, dir string) error {
	if _, err := fsys.Stat(dir); err == nil {
		return nil
	}
	parent := fsys.PathDir(dir)
	if parent != dir {
		if err := makeDirs(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory %s: %w", dir, err)
	}
	return syncDir(fsys, parent)
}

func syncDir(fsys storage.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open directory %s: %w", dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// replaceFile replaces a file durably and atomically.
func replaceFile(fsys storage.FS, path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := fsys.Create(tmp, "unspecified")
	if err != nil {
		return fmt.Errorf("create %s: %w", tmp, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	if err := fsys.Rename(tmp, path); err != nil {
		return fmt.Errorf("rename %s: %w", tmp, err)
	}
	return syncDir(fsys, fsys.PathDir(path))
}

// readFile returns a file's content; ok says that there is one.
func readFile(fsys storage.FS, path string) (data []byte, ok bool, err error) {
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	data, err = io.ReadAll(f)
	return data, true, errors.Join(err, f.Close())
}

func exists(fsys storage.FS, path string) (bool, error) {
	_, err := fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

const (
	incarnationFile = "INCARNATION"
	incarnationSize = 8              // random bytes
	incarnationForm = "%08x %[2]s\n" // checksum, id
	incarnationShow = 64             // bytes of a file that are shown
	logDir          = "log"
	stateDir        = "state"
)

func newIncarnation() string {
	var b [incarnationSize]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// incarnation returns the id of the replica in dir, or makes one for a new
// replica: given, or a random one if that is empty. A replica whose data is there
// and whose id is not cannot be told from another one: damaged.
func incarnation(fsys storage.FS, dir, given string) (string, error) {
	path := fsys.PathJoin(dir, incarnationFile)
	if id, ok, err := readIncarnation(fsys, dir); err != nil || ok {
		return id, err
	}
	for _, sub := range []string{logDir, stateDir} {
		there, err := exists(fsys, fsys.PathJoin(dir, sub))
		if err != nil {
			return "", err
		}
		if there {
			return "", record.Damaged(path, "is missing beside %s", sub)
		}
	}
	if err := makeDirs(fsys, dir); err != nil {
		return "", err
	}
	if given == "" {
		given = newIncarnation()
	}
	return given, replaceFile(fsys, path, sealIncarnation(given))
}

// readIncarnation reads the id of the replica in dir; ok is false if there is none.
func readIncarnation(fsys storage.FS, dir string) (id string, ok bool, err error) {
	path := fsys.PathJoin(dir, incarnationFile)
	b, ok, err := readFile(fsys, path)
	if err != nil || !ok {
		return "", false, err
	}
	text := strings.TrimSuffix(string(b), "\n")
	if _, sealed, has := strings.Cut(text, " "); has && isIncarnation(sealed) && bytes.Equal(b, sealIncarnation(sealed)) {
		return sealed, true, nil
	}
	if isIncarnation(text) && len(b) == len(text)+1 { // of an older build, without a checksum
		return text, true, nil
	}
	return "", false, record.Damaged(path, "holds %q, no incarnation", b[:min(len(b), incarnationShow)])
}

// sealIncarnation is the content of the file. The checksum comes first: no part of such a
// file is one of an older build, which holds the id alone.
func sealIncarnation(id string) []byte {
	return fmt.Appendf(nil, incarnationForm, crc32.Checksum([]byte(id), crc32.MakeTable(crc32.Castagnoli)), id)
}

// lost says that a replica's log is gone: it is made before the state, and would be
// made again, empty, without a word.
func lost(fsys storage.FS, log, state string) error {
	if there, err := exists(fsys, state); err != nil || !there {
		return err
	}
	names, err := fsys.List(log)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(names) == 0) {
		return record.Damaged(log, "is missing or empty beside %s", state)
	}
	return err
}
