package main

import (
	"fmt"
	"strings"

	"billhook/internal/console/ops"
)

func waiting(q ops.Queue) string {
	text := q.Waiting.String()
	if !q.Enabled {
		text = strings.TrimPrefix(text, "broker not counted")
	}
	if q.Backlog != nil && q.Backlog.Max > 0 {
		text = strings.Replace(text, " in the broker", fmt.Sprintf(" of %d in the broker", q.Backlog.Max), 1)
	}
	return text
}
