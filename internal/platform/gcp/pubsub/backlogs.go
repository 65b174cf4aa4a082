package pubsub

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/api/monitoring/v3"
	"google.golang.org/api/option"

	"billhook/internal/platform/backlog"
)

const (
	// recent is the age of the oldest usable sample: samples come every minute, two minutes late.
	recent          = 4 * time.Minute
	backlogsTimeout = 20 * time.Second
	// The number of a subscription's unacknowledged messages, and the age of the oldest in seconds.
	unacknowledged = `metric.type = "pubsub.googleapis.com/subscription/num_undelivered_messages"`
	oldest         = `metric.type = "pubsub.googleapis.com/subscription/oldest_unacked_message_age"`
)

// Backlogs reads the number of waiting messages from Cloud Monitoring, because Pub/Sub does not return it.
type Backlogs struct {
	service *monitoring.Service
	names   Names
	now     func() time.Time
}

// NewBacklogs returns a Backlogs. Without options the client library finds the credentials.
func NewBacklogs(
	ctx context.Context, names Names, now func() time.Time, options ...option.ClientOption,
) (*Backlogs, error) {
	service, err := monitoring.NewService(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("pubsub: monitoring: %w", err)
	}
	return &Backlogs{service: service, names: names, now: now}, nil
}

// Backlogs returns each subscription's last count, by its id in the catalog, and the time of the oldest
// sample. A subscription without a recent sample is left out. Without ages, Oldest stays zero.
func (b *Backlogs) Backlogs(ctx context.Context) (held map[string]backlog.Held, at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, backlogsTimeout)
	defer cancel()
	now := b.now().UTC()
	held, at = map[string]backlog.Held{}, now
	if err := b.newest(ctx, unacknowledged, now, func(subscription string, messages int64, counted time.Time) {
		held[subscription] = backlog.Held{Messages: messages}
		if counted.Before(at) {
			at = counted
		}
	}); err != nil {
		return nil, time.Time{}, fmt.Errorf("pubsub: backlogs: %w", err)
	}
	// The webhook service needs the counts even without the ages.
	_ = b.newest(ctx, oldest, now, func(subscription string, age int64, counted time.Time) {
		if one := held[subscription]; one.Messages > 0 {
			one.Oldest = counted.Add(-time.Duration(age) * time.Second)
			held[subscription] = one
		}
	})
	return held, at, nil
}

func (b *Backlogs) newest(
	ctx context.Context, filter string, now time.Time,
	found func(subscription string, number int64, at time.Time),
) error {
	if b.names.Installation != "" { // Google charges for each series
		filter += ` AND resource.labels.subscription_id = starts_with("` + b.names.prefix() + `")`
	}
	return b.service.Projects.TimeSeries.List("projects/"+b.names.ProjectID).Filter(filter).View("FULL").
		IntervalStartTime(now.Add(-recent).Format(time.RFC3339)).IntervalEndTime(now.Format(time.RFC3339)).
		Fields("nextPageToken", "timeSeries(resource/labels,points)").
		Pages(ctx, func(page *monitoring.ListTimeSeriesResponse) error {
			for _, series := range page.TimeSeries {
				if series.Resource == nil || len(series.Points) == 0 { // the newest is the first
					continue
				}
				point := series.Points[0]
				if point.Value == nil || point.Value.Int64Value == nil || point.Interval == nil {
					continue
				}
				id, own := strings.CutPrefix(series.Resource.Labels["subscription_id"], b.names.prefix())
				if ended, err := time.Parse(time.RFC3339, point.Interval.EndTime); own && err == nil {
					found(id, *point.Value.Int64Value, ended)
				}
			}
			return nil
		})
}
