package jsapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// marshalEnum and unmarshalEnum give an enum whose values index names its JSON form and the error
// texts that JetStream gives for a value it does not know.
func marshalEnum(names []string, v int) ([]byte, error) {
	if v < 0 || v >= len(names) || names[v] == "" {
		return nil, fmt.Errorf("can not marshal %d", v)
	}
	return []byte(`"` + names[v] + `"`), nil
}

func unmarshalEnum(names []string, data []byte) (int, error) {
	if len(data) > 2 && data[0] == '"' && data[len(data)-1] == '"' {
		for i, name := range names {
			if string(data[1:len(data)-1]) == name {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("can not unmarshal %q", data)
}

func enumName(names []string, v int) string {
	if v < 0 || v >= len(names) || names[v] == "" {
		return "unknown"
	}
	return names[v]
}

// Retention says when a stream drops a message besides its limits.
type Retention uint8

// The retention policies; the zero value is the default.
const (
	LimitsPolicy Retention = iota
	InterestPolicy
	WorkQueuePolicy
)

func retentionNames() []string { return []string{"limits", "interest", "workqueue"} }

// String returns the wire name.
func (r Retention) String() string { return enumName(retentionNames(), int(r)) }

// MarshalJSON writes the wire name; it fails on an unknown value.
func (r Retention) MarshalJSON() ([]byte, error) { return marshalEnum(retentionNames(), int(r)) }

// UnmarshalJSON reads the wire name, in JetStream's spelling only.
func (r *Retention) UnmarshalJSON(data []byte) error {
	v, err := unmarshalEnum(retentionNames(), data)
	*r = Retention(v)
	return err
}

// Discard says what a full stream does with a new message.
type Discard uint8

// The discard policies; the zero value is the default.
const (
	DiscardOld Discard = iota
	DiscardNew
)

func discardNames() []string { return []string{"old", "new"} }

// String returns the wire name.
func (d Discard) String() string { return enumName(discardNames(), int(d)) }

// MarshalJSON writes the wire name; it fails on an unknown value.
func (d Discard) MarshalJSON() ([]byte, error) { return marshalEnum(discardNames(), int(d)) }

// UnmarshalJSON reads the wire name in upper or lower case, as JetStream does for this one.
func (d *Discard) UnmarshalJSON(data []byte) error {
	v, err := unmarshalEnum(discardNames(), []byte(strings.ToLower(string(data))))
	if err != nil {
		return fmt.Errorf("can not unmarshal %q", data)
	}
	*d = Discard(v)
	return nil
}

// Storage says where a stream keeps its messages.
type Storage uint8

// The storage types. The zero value is "not said" and becomes FileStorage.
const (
	StorageUnset Storage = iota
	FileStorage
	MemoryStorage
)

func storageNames() []string { return []string{"", "file", "memory"} }

// String returns the wire name.
func (s Storage) String() string { return enumName(storageNames(), int(s)) }

// MarshalJSON writes the wire name; it fails on an unknown or unset value.
func (s Storage) MarshalJSON() ([]byte, error) { return marshalEnum(storageNames(), int(s)) }

// UnmarshalJSON reads the wire name.
func (s *Storage) UnmarshalJSON(data []byte) error {
	v, err := unmarshalEnum(storageNames(), data)
	*s = Storage(v)
	return err
}

// Compression says whether a stream's files are compressed.
type Compression uint8

// The compressions; the zero value is the default.
const (
	NoCompression Compression = iota
	S2Compression
)

// errCompression is JetStream's text for a compression it does not know, both ways.
var errCompression = errors.New("unknown compression algorithm")

func compressionNames() []string { return []string{"none", "s2"} }

// String returns the wire name.
func (c Compression) String() string { return enumName(compressionNames(), int(c)) }

// MarshalJSON writes the wire name; it fails on an unknown value.
func (c Compression) MarshalJSON() ([]byte, error) {
	b, err := marshalEnum(compressionNames(), int(c))
	if err != nil {
		return nil, errCompression
	}
	return b, nil
}

// UnmarshalJSON reads the wire name.
func (c *Compression) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err //nolint:wrapcheck // The text goes over the wire as it is.
	}
	for i, name := range compressionNames() {
		if s == name {
			*c = Compression(i)
			return nil
		}
	}
	return errCompression
}

// PersistMode says when a stream's writes are flushed.
type PersistMode uint8

// The persist modes; the zero value is the default and left out in JSON.
const (
	PersistDefault PersistMode = iota
	PersistAsync
)

func persistNames() []string { return []string{"default", "async"} }

// String returns the wire name.
func (p PersistMode) String() string { return enumName(persistNames(), int(p)) }

// MarshalJSON writes the wire name; it fails on an unknown value.
func (p PersistMode) MarshalJSON() ([]byte, error) { return marshalEnum(persistNames(), int(p)) }

// UnmarshalJSON reads the wire name; an empty string is the default.
func (p *PersistMode) UnmarshalJSON(data []byte) error {
	if string(data) == `""` {
		*p = PersistDefault
		return nil
	}
	v, err := unmarshalEnum(persistNames(), data)
	*p = PersistMode(v)
	return err
}
