// Package tasks has Cloud Tasks call a worker at a given time. It owns the queue's
// client, its bounds, and which moments this process has asked for already. It refuses
// to know what is done then.
package tasks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	cloudtasks "cloud.google.com/go/cloudtasks/apiv2"
	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"golang.org/x/sync/singleflight"
	"google.golang.org/api/option"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"billhook/internal/alarm"
	"billhook/internal/retry"
)

const (
	// timeout bounds one At: whoever asks holds a push.
	timeout = 1500 * time.Millisecond
	// skew is how far the clock of the worker that is called may be behind Cloud Tasks'. What
	// is not due there yet would wait for the scheduler.
	skew = 50 * time.Millisecond
	// maxAhead is the farthest that Cloud Tasks takes a task for.
	maxAhead = 30 * 24 * time.Hour
	// dispatchDeadline is how long Cloud Tasks waits for an answer: longer than the worker's
	// tasks run, and as long as the scheduler.
	dispatchDeadline = 90 * time.Second
)

// errTooFar: Cloud Tasks would refuse it.
var errTooFar = errors.New("tasks: more than 30 days ahead")

// Config is what an Alarm is made of. Every field is required.
type Config struct {
	// Queue is projects/P/locations/L/queues/Q.
	Queue string
	// URL is posted to, without a body.
	URL string
	// ServiceAccount and Audience are the token's that the call carries.
	ServiceAccount, Audience string
	Now                      func() time.Time
}

// Alarm asks for calls. It is safe for concurrent use.
type Alarm struct {
	config Config
	client *cloudtasks.Client
	flight singleflight.Group

	mu    sync.Mutex
	asked alarm.Asked
}

// New returns an Alarm. Without options the client library finds the credentials.
func New(ctx context.Context, config Config, options ...option.ClientOption) (*Alarm, error) {
	client, err := cloudtasks.NewClient(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("tasks: client: %w", err)
	}
	return &Alarm{config: config, client: client}, nil
}

// Close ends the client. The calls that were asked for are made nevertheless.
func (a *Alarm) Close() error { return a.client.Close() }

// At asks for a call at the given time or shortly after, or after now where that is later.
// It takes two seconds at most, whatever ctx says: what was kept needs its call also where
// its push has ended. A moment that this process has asked for already is not asked for
// again; where two processes do, there are two calls. The error is marked as a dependency
// that is down; the call may come then, too.
func (a *Alarm) At(ctx context.Context, at time.Time) error {
	now := a.config.Now()
	if at.Before(now) {
		at = now
	}
	moment := alarm.Moment(at.Add(skew))
	if moment.Sub(now) > maxAhead {
		return retry.Down("alarm_unavailable", errTooFar)
	}
	// Those who ask for one moment at the same time hear the same.
	_, err, _ := a.flight.Do(strconv.FormatInt(moment.UnixMicro(), 10), func() (any, error) {
		if a.known(moment, now) {
			return nil, nil
		}
		if err := a.create(context.WithoutCancel(ctx), moment); err != nil {
			return nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked.Add(moment) // without room it may be asked for again, and called for twice
		return nil, nil
	})
	if err != nil {
		return retry.Down("alarm_unavailable", err)
	}
	return nil
}

// known reports whether a moment has been asked for, and forgets those that have come.
func (a *Alarm) known(moment, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked.Past(now)
	return a.asked.Has(moment)
}

// create makes the task. It has no name: one that rises with time is slow for the whole
// queue, and any costs a look-up.
func (a *Alarm) create(ctx context.Context, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := a.client.CreateTask(ctx, &cloudtaskspb.CreateTaskRequest{Parent: a.config.Queue, Task: &cloudtaskspb.Task{
		ScheduleTime: timestamppb.New(at), DispatchDeadline: durationpb.New(dispatchDeadline),
		MessageType: &cloudtaskspb.Task_HttpRequest{HttpRequest: &cloudtaskspb.HttpRequest{
			Url: a.config.URL, HttpMethod: cloudtaskspb.HttpMethod_POST,
			AuthorizationHeader: &cloudtaskspb.HttpRequest_OidcToken{OidcToken: &cloudtaskspb.OidcToken{
				ServiceAccountEmail: a.config.ServiceAccount, Audience: a.config.Audience,
			}},
		}},
	}})
	if err != nil {
		return fmt.Errorf("tasks: create: %w", err)
	}
	return nil
}
