package tasks

import (
	"time"

	"billhook/internal/pipeline/alarm"
)

// Fill fills the alarm's memory with moments from the given one on.
func (a *Alarm) Fill(from time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range alarm.MaxMoments {
		a.requested.Add(from.Add(time.Duration(i) * alarm.Step))
	}
}
