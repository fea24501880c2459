package plan

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// StreamDescription is what PutStream stores of a stream, as JSON: opaque to
// replication and storage.
type StreamDescription struct {
	Account string              `json:"account"`
	Config  *jsapi.StreamConfig `json:"config"`
	Created time.Time           `json:"created"`
}

// Encode returns the stored form.
func (d *StreamDescription) Encode() []byte { return encode(d) }

// ParseStreamDescription reads the stored form.
func ParseStreamDescription(b []byte) (*StreamDescription, error) {
	var d StreamDescription
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("stream description: %w", err)
	}
	if d.Config == nil {
		return nil, fmt.Errorf("stream description without a configuration")
	}
	return &d, nil
}

// ConsumerDescription is what PutConsumer stores of a consumer, as JSON.
type ConsumerDescription struct {
	Config  *jsapi.ConsumerConfig `json:"config"`
	Created time.Time             `json:"created"`
	// Nameless is set if the server made the name: it is not shown as a part of the
	// configuration.
	Nameless bool `json:"nameless,omitempty"`
	// Paused is set while the consumer is paused; the configuration has it too.
	Paused *time.Time `json:"paused,omitempty"`
}

// Encode returns the stored form.
func (d *ConsumerDescription) Encode() []byte { return encode(d) }

// ParseConsumerDescription reads the stored form.
func ParseConsumerDescription(b []byte) (*ConsumerDescription, error) {
	var d ConsumerDescription
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("consumer description: %w", err)
	}
	if d.Config == nil {
		return nil, fmt.Errorf("consumer description without a configuration")
	}
	return &d, nil
}

// encode marshals a description; its types hold nothing that can fail, but for
// an enum out of range, which validation keeps out.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("description of validated configuration: %v", err))
	}
	return b
}
