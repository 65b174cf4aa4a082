package pubsub

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/api/monitoring/v3"
	"google.golang.org/api/option"
)

const (
	// recent is how far back a number may lie: Cloud Monitoring samples every minute, and may show
	// a sample two minutes later.
	recent = 4 * time.Minute
	// backlogsTimeout bounds one question, all its pages together.
	backlogsTimeout = 20 * time.Second
	// unacknowledged counts the messages of a subscription that are not acknowledged.
	unacknowledged = `metric.type = "pubsub.googleapis.com/subscription/num_undelivered_messages"`
)

// Backlogs asks Cloud Monitoring how many messages wait: Pub/Sub itself does not say.
type Backlogs struct {
	service *monitoring.Service
	project string
	now     func() time.Time
}

// NewBacklogs returns the backlogs of the project's subscriptions. Without options the client
// library finds the credentials.
func NewBacklogs(ctx context.Context, projectID string, now func() time.Time, options ...option.ClientOption) (*Backlogs, error) {
	service, err := monitoring.NewService(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("pubsub: monitoring: %w", err)
	}
	return &Backlogs{service: service, project: projectID, now: now}, nil
}

// Backlogs returns the newest number of each subscription, and the time of the oldest of them. A
// subscription without a number of the last minutes is missing.
func (b *Backlogs) Backlogs(ctx context.Context) (messages map[string]int64, at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, backlogsTimeout)
	defer cancel()
	now := b.now().UTC()
	messages, at = map[string]int64{}, now
	call := b.service.Projects.TimeSeries.List("projects/"+b.project).Filter(unacknowledged).View("FULL").
		IntervalStartTime(now.Add(-recent).Format(time.RFC3339)).IntervalEndTime(now.Format(time.RFC3339)).
		Fields("nextPageToken", "timeSeries(resource/labels,points)")
	err = call.Pages(ctx, func(page *monitoring.ListTimeSeriesResponse) error {
		for _, series := range page.TimeSeries {
			if series.Resource == nil || len(series.Points) == 0 { // the newest is the first
				continue
			}
			point := series.Points[0]
			if point.Value == nil || point.Value.Int64Value == nil || point.Interval == nil {
				continue
			}
			ended, err := time.Parse(time.RFC3339, point.Interval.EndTime)
			if err != nil {
				continue
			}
			messages[series.Resource.Labels["subscription_id"]] = *point.Value.Int64Value
			if ended.Before(at) {
				at = ended
			}
		}
		return nil
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("pubsub: backlogs: %w", err)
	}
	return messages, at, nil
}
