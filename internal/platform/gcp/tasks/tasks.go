// Package tasks makes Cloud Tasks call a worker at a given time. It owns the queue's client, its limits, and
// the set of calls that this process has requested. It does not know the purpose of a call.
package tasks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	cloudtasks "cloud.google.com/go/cloudtasks/apiv2"
	pb "cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/api/option"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"billhook/internal/pipeline/alarm"
	"billhook/internal/platform/cache"
	"billhook/internal/retry"
)

const (
	timeout = 1500 * time.Millisecond
	// skew is how far the called worker's clock may be behind. A call that comes too early finds no due message.
	skew = 50 * time.Millisecond
	// maxAhead is Cloud Tasks' limit for the time of a task.
	maxAhead = 30 * 24 * time.Hour
	// dispatchDeadline is longer than any of the worker's tasks runs.
	dispatchDeadline = 90 * time.Second
)

// Config configures an Alarm. Every field is required.
type Config struct {
	Queue                    string // projects/P/locations/L/queues/Q
	URL                      string // receives a POST without a body
	ServiceAccount, Audience string
	Now                      func() time.Time
}

// Alarm requests calls from Cloud Tasks. It is safe for concurrent use.
type Alarm struct {
	config    Config
	client    *cloudtasks.Client
	requested *cache.Cache[struct{}] // the requested calls, by their time
}

// New returns an Alarm. Without options the client library finds the credentials.
func New(ctx context.Context, config Config, options ...option.ClientOption) (*Alarm, error) {
	client, err := cloudtasks.NewClient(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("tasks: client: %w", err)
	}
	requested := cache.New[struct{}](alarm.MaxMoments, config.Now)
	return &Alarm{config: config, client: client, requested: requested}, nil
}

// Close ends the client. Requested calls are still made.
func (a *Alarm) Close() error { return a.client.Close() }

// At requests a call at the given time or shortly after, or after now if that is later. It takes at most two
// seconds and ignores the end of ctx, because a kept message needs its call even if its push has ended. Two
// processes may cause two calls. The error is marked as retry.Down; the call may still come.
func (a *Alarm) At(ctx context.Context, at time.Time) error {
	now := a.config.Now()
	if at.Before(now) {
		at = now
	}
	moment := alarm.Moment(at.Add(skew))
	if moment.Sub(now) > maxAhead {
		return retry.Down("alarm_unavailable", errors.New("tasks: more than 30 days ahead"))
	}
	// If another caller's request for the same time fails, this caller makes its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	key := strconv.FormatInt(moment.UnixMicro(), 10)
	_, err := a.requested.Get(ctx, key, func(context.Context) (struct{}, time.Duration, error) {
		return struct{}{}, moment.Sub(now), a.create(ctx, moment)
	})
	if err != nil {
		return retry.Down("alarm_unavailable", err)
	}
	return nil
}

// create does not name the task: rising names slow down the queue, and each name costs a look-up.
func (a *Alarm) create(ctx context.Context, at time.Time) error {
	token := &pb.OidcToken{ServiceAccountEmail: a.config.ServiceAccount, Audience: a.config.Audience}
	request := &pb.HttpRequest{
		Url: a.config.URL, HttpMethod: pb.HttpMethod_POST,
		AuthorizationHeader: &pb.HttpRequest_OidcToken{OidcToken: token},
	}
	_, err := a.client.CreateTask(ctx, &pb.CreateTaskRequest{Parent: a.config.Queue, Task: &pb.Task{
		ScheduleTime: timestamppb.New(at), DispatchDeadline: durationpb.New(dispatchDeadline),
		MessageType: &pb.Task_HttpRequest{HttpRequest: request},
	}})
	if err != nil {
		return fmt.Errorf("tasks: create: %w", err)
	}
	return nil
}
