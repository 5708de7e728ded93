package cli

import (
	"fmt"
)

// The documents of commands that only confirm.

type deleted struct {
	Deleted    bool    `json:"deleted"`
	Stream     string  `json:"stream,omitempty"`
	Topic      string  `json:"topic,omitempty"`
	Group      string  `json:"group,omitempty"`
	User       string  `json:"user,omitempty"`
	Name       string  `json:"name,omitempty"`
	Partition  *uint32 `json:"partition_id,omitempty"`
	Partitions uint32  `json:"partitions_count,omitempty"`
	Segments   uint32  `json:"segments_count,omitempty"`
}

type updated struct {
	Updated bool   `json:"updated"`
	Stream  string `json:"stream,omitempty"`
	Topic   string `json:"topic,omitempty"`
	User    string `json:"user,omitempty"`
	Name    string `json:"name,omitempty"`
	Status  string `json:"status,omitempty"`
}

type purged struct {
	Purged bool   `json:"purged"`
	Stream string `json:"stream"`
	Topic  string `json:"topic,omitempty"`
}

// failed says which action an error ended.
func failed(err error, format string, args ...any) error {
	return fmt.Errorf("could not %s: %w", fmt.Sprintf(format, args...), err)
}
