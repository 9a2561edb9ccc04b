package webhook

import (
	"bytes"
	"time"

	"github.com/nodewarden/nodewarden/contract"
)

// readManaged reads from managedFields what contract.ReadyTimes reads: when
// Ready was last written, by whoever reports its heartbeat and by anybody.
func (d *decoder) readManaged(raw []byte) (heartbeat, any time.Time, err error) {
	if raw == nil {
		return heartbeat, any, nil
	}
	c := &d.part
	c.start(raw)
	d.managed = d.managed[:0]
	n := 0
	if err = c.elements(func() error { n++; return d.readEntry() }); err != nil || n > contract.MaxManaged {
		return heartbeat, any, err
	}
	for i := range d.managed {
		e := &d.managed[i]
		owns, beats, err := d.ownsReady(e.fields)
		if err != nil {
			return heartbeat, any, err
		}
		if owns && e.at.After(any) {
			any = e.at
		}
		if beats && e.at.After(heartbeat) {
			heartbeat = e.at
		}
	}
	return heartbeat, any, nil
}

// entry is a managedFields entry of the status subresource that may own Ready.
type entry struct {
	at     time.Time
	fields []byte
}

func (d *decoder) readEntry() error {
	c := &d.part
	var at, subresource, fields []byte
	err := c.members(func(name []byte) error {
		switch string(name) {
		case "time":
			return c.take(&at)
		case "subresource":
			return c.take(&subresource)
		case "fieldsV1":
			return c.take(&fields)
		}
		return c.skip()
	})
	if err != nil {
		return err
	}
	e := entry{fields: fields}
	if e.at, err = instant(at); err != nil {
		return err
	}
	sub, err := text(subresource)
	if err == nil && sub == "status" && mayOwnReady(fields) {
		d.managed = append(d.managed, e)
	}
	return err
}

// mayOwnReady is a quick no for the many entries that do not name Ready.
func mayOwnReady(fields []byte) bool {
	return bytes.Contains(fields, []byte("Ready")) || bytes.Contains(fields, []byte(`\u`))
}

// ownsReady says whether fieldsV1 holds any field of the Ready condition, and
// whether its lastHeartbeatTime is among them.
func (d *decoder) ownsReady(fields []byte) (owns, beats bool, err error) {
	for _, name := range []string{"f:status", "f:conditions", `k:{"type":"Ready"}`} {
		if fields, err = d.last(fields, name); err != nil || !isObject(fields) {
			return false, false, err
		}
	}
	beat, err := d.last(fields, "f:lastHeartbeatTime")
	return true, beat != nil, err
}

// last returns the value of the last member of that name in object, or nil.
// In a map the last one wins, unlike in a struct.
func (d *decoder) last(object []byte, name string) (value []byte, err error) {
	if !isObject(object) {
		return nil, nil
	}
	c := &d.part
	c.start(object)
	err = c.members(func(member []byte) error {
		if string(member) != name {
			return c.skip()
		}
		value, err = c.value()
		return err
	})
	return value, err
}

func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }
