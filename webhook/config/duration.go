package config

import (
	"encoding/json"
	"time"
)

// Duration is a time.Duration written like "10s". Text that is none is kept
// until validation, which can tell at which path it stands.
type Duration struct {
	time.Duration
	unreadable *string
}

// UnmarshalJSON never fails on a value of the wrong form; Validate reports it.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil {
		s = string(b)
	}
	var err error
	if d.Duration, err = time.ParseDuration(s); err != nil {
		d.unreadable = &s
	}
	return nil
}

// MarshalJSON writes the duration as text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }
