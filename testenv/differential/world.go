package differential

import (
	"maps"
	"slices"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// world is the state of the JetStream side, as the lists tell it: what the generator chooses from.
type world struct {
	streams    map[string]*worldStream
	deliveries map[AckRef]int // deliveries by stream and consumer so far
	last       map[AckRef]int // the last delivery of a message: N of the key is its sequence
	acks       int            // messages that wait for an ack, of all consumers
}

type worldStream struct {
	info      *jsapi.StreamInfo
	consumers map[string]*jsapi.ConsumerInfo
}

func newWorld() *world { return &world{streams: make(map[string]*worldStream)} }

// names are the streams in order.
func (w *world) names() []string { return slices.Sorted(maps.Keys(w.streams)) }

// lists are read leniently: the answers are normalised, so times are no times.
func (w *world) setStreams(body string) error {
	var list struct {
		Streams []struct {
			Config jsapi.StreamConfig `json:"config"`
			State  struct {
				Msgs     uint64 `json:"messages"`
				FirstSeq uint64 `json:"first_seq"`
				LastSeq  uint64 `json:"last_seq"`
			} `json:"state"`
		} `json:"streams"`
	}
	if err := decode([]byte(body), &list); err != nil {
		return err
	}
	old := w.streams
	w.streams = make(map[string]*worldStream, len(list.Streams))
	for i := range list.Streams {
		s := &list.Streams[i]
		ws := old[s.Config.Name]
		if ws == nil {
			ws = &worldStream{}
		}
		ws.info = &jsapi.StreamInfo{Config: s.Config, State: jsapi.StreamState{
			Msgs: s.State.Msgs, FirstSeq: s.State.FirstSeq, LastSeq: s.State.LastSeq,
		}}
		w.streams[s.Config.Name] = ws
	}
	return nil
}

func (w *world) setConsumers(stream, body string) error {
	var list struct {
		Consumers []struct {
			Name   string `json:"name"`
			Config struct {
				AckPolicy      jsapi.AckPolicy `json:"ack_policy"`
				MaxAckPending  int             `json:"max_ack_pending"`
				MaxDeliver     int             `json:"max_deliver"`
				MaxWaiting     int             `json:"max_waiting"`
				MemoryStorage  bool            `json:"mem_storage"`
				SampleFreq     string          `json:"sample_freq"`
				Durable        string          `json:"durable_name"`
				FilterSubject  string          `json:"filter_subject"`
				FilterSubjects []string        `json:"filter_subjects"`
			} `json:"config"`
			Delivered struct {
				Consumer uint64 `json:"consumer_seq"`
				Stream   uint64 `json:"stream_seq"`
			} `json:"delivered"`
			AckFloor struct {
				Consumer uint64 `json:"consumer_seq"`
			} `json:"ack_floor"`
			NumAckPending  int    `json:"num_ack_pending"`
			NumRedelivered int    `json:"num_redelivered"`
			NumWaiting     int    `json:"num_waiting"`
			NumPending     uint64 `json:"num_pending"`
			Paused         bool   `json:"paused"`
		} `json:"consumers"`
	}
	if err := decode([]byte(body), &list); err != nil {
		return err
	}
	ws := w.streams[stream]
	if ws == nil {
		return nil
	}
	defer w.count()
	ws.consumers = make(map[string]*jsapi.ConsumerInfo, len(list.Consumers))
	for i := range list.Consumers {
		c := &list.Consumers[i]
		ws.consumers[c.Name] = &jsapi.ConsumerInfo{
			Stream: stream, Name: c.Name, AckFloor: jsapi.SequenceInfo{Consumer: c.AckFloor.Consumer},
			Delivered:     jsapi.SequenceInfo{Consumer: c.Delivered.Consumer, Stream: c.Delivered.Stream},
			NumAckPending: c.NumAckPending, NumRedelivered: c.NumRedelivered,
			NumWaiting: c.NumWaiting, NumPending: c.NumPending, Paused: c.Paused,
			Config: &jsapi.ConsumerConfig{
				Name: c.Name, Durable: c.Config.Durable, AckPolicy: c.Config.AckPolicy,
				MaxAckPending: c.Config.MaxAckPending, MaxDeliver: c.Config.MaxDeliver,
				MaxWaiting: c.Config.MaxWaiting, MemoryStorage: c.Config.MemoryStorage,
				SampleFrequency: c.Config.SampleFreq,
				FilterSubject:   c.Config.FilterSubject, FilterSubjects: c.Config.FilterSubjects,
			},
		}
	}
	return nil
}

func (w *world) count() {
	w.acks = 0
	for _, s := range w.streams {
		for _, c := range s.consumers {
			w.acks += c.NumAckPending
		}
	}
}

// pending reports whether a consumer is about to deliver: a request waits and a message may go.
func (w *world) pending() bool {
	for _, s := range w.streams {
		for _, c := range s.consumers {
			full := c.Config.MaxAckPending > 0 && c.NumAckPending >= c.Config.MaxAckPending
			if c.NumWaiting > 0 && c.NumPending > 0 && !full && !c.Paused {
				return true
			}
		}
	}
	return false
}

// firstDeliveries counts the messages that were delivered for the first time.
func (c *client) firstDeliveries() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.firsts
}

// deliveries counts the deliveries of each consumer, and finds the last one of each message.
func (c *client) deliveries() (count, last map[AckRef]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.mu.count), maps.Clone(c.mu.last)
}
