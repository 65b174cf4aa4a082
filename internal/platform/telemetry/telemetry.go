// Package telemetry owns the program's logs and metrics: one structured line per webhook and per delivery, in
// Cloud Logging's format, and the metrics at /metrics. It takes no payloads: callers pass ids, codes and
// numbers.
package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics counts webhooks and deliveries. Every label is a code from a closed set, so that no sender can
// create a new series.
type Metrics struct {
	registry *prometheus.Registry

	webhooks, large, dropped, unsent, deliveries, orphans, unlimited, skipped *prometheus.CounterVec

	ingest, handling          *prometheus.HistogramVec
	open, oldestOpen, waiting *prometheus.GaugeVec
	relayed, stuck            prometheus.Counter // of the outbox, like oldest
	released, kept            prometheus.Counter // of delayed messages, like overdue
	sealed                    prometheus.Counter
	oldest, overdue           prometheus.Gauge
	unsealed, unreadable      prometheus.Gauge
	unfounded, untrue         prometheus.Gauge
}

// NewMetrics returns metrics in a new registry.
func NewMetrics() *Metrics {
	registry := prometheus.NewRegistry()
	auto := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	seconds := func(name, help string, buckets int, label string) *prometheus.HistogramVec {
		return auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2, buckets),
		}, []string{label})
	}
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Metrics{
		registry: registry,
		webhooks: counter("billhook_webhooks_total", "Webhooks by source, answer and reason.", "source",
			"status", "reason"),
		ingest: seconds("billhook_webhook_duration_seconds", "From the first byte of a webhook to its answer.",
			15, "source"),
		large: counter("billhook_large_messages_total",
			"Published messages above the recommended 256 KiB.", "queue"),
		dropped: counter("billhook_webhook_dropped_fields_total", "Accepted webhooks that an optional field "+
			"was left out of for its value, by source, field path and rule.", "source", "field", "rule"),
		unsent: counter("billhook_webhook_unconfirmed_total",
			"Webhooks that the broker did not confirm, by queue and cause.", "queue", "cause"),
		deliveries: counter("billhook_deliveries_total", "Deliveries by queue, outcome and reason.", "queue",
			"outcome", "reason"),
		handling: seconds("billhook_delivery_duration_seconds",
			"From the first byte of a delivery to its answer.", 17, "queue"),
		relayed: counter("billhook_outbox_relayed_total", "Messages that the outbox relay published: those "+
			"not published right after their commit.").WithLabelValues(),
		stuck: counter("billhook_outbox_failures_total",
			"Ordering keys that a run of the outbox relay could not finish.").WithLabelValues(),
		oldest: gauge("billhook_outbox_oldest_seconds",
			"Age of the oldest message in the outbox, as of this instance's last relay run.").WithLabelValues(),
		released: counter("billhook_delayed_released_total",
			"Messages that were published when their wait was over.").WithLabelValues(),
		kept: counter("billhook_delayed_failures_total",
			"Ordering keys that a run of release-delayed could not finish.").WithLabelValues(),
		overdue: gauge("billhook_delayed_overdue_seconds", "How long the message that is overdue the longest "+
			"should have been published, as of this instance's last run.").WithLabelValues(),
		orphans: counter("billhook_orphans_total",
			"Events that were claimed and never finished, by what the sweep did.", "queue", "action"),
		open: gauge("billhook_dead_letters_open", "Open dead letters, as of this instance's last count.", "queue"),
		oldestOpen: gauge("billhook_dead_letters_oldest_seconds",
			"How long the oldest open dead letter has waited, as of this instance's last count.", "queue"),
		unlimited: counter("billhook_limits_unknown_total", "Messages that were taken though a limit of the "+
			"webhook service could not be known, by queue and limit.", "queue", "limit"),
		sealed: counter("billhook_sealed_entries_total", "Entries of the books that this instance has sealed.").
			WithLabelValues(),
		unsealed: gauge("billhook_unsealed_oldest_seconds", "Age of the oldest entry of the books that this "+
			"instance's last run left without a seal.").WithLabelValues(),
		skipped: counter("billhook_documents_unreadable_total",
			"Documents that cannot be read, by collection, each time that a list has left one out.", "collection"),
		unreadable: gauge("billhook_unsealed_unreadable", "Entries of the books that cannot be read, and so not "+
			"sealed, as of this instance's last run.").WithLabelValues(),
		unfounded: gauge("billhook_unsealed_unfounded", "Entries of the books that neither a record nor the "+
			"audit names, and so not sealed, as of this instance's last run.").WithLabelValues(),
		untrue: gauge("billhook_books_findings", "What the last verification of the books has found, or the "+
			"one that runs, as of this instance's last run.").WithLabelValues(),
		waiting: gauge("billhook_backlog_messages",
			"Messages that wait in the broker, as of this instance's last count.", "queue"),
	}
}

// Webhook counts one answered webhook. reason is a code, empty when accepted.
func (m *Metrics) Webhook(source string, status int, reason string, took time.Duration) {
	label := "202" // the most frequent one, without a conversion
	if status != http.StatusAccepted {
		label = strconv.Itoa(status)
	}
	m.webhooks.WithLabelValues(source, label, reason).Inc()
	m.ingest.WithLabelValues(source).Observe(took.Seconds())
}

// LargeMessage counts a message above the recommended size.
func (m *Metrics) LargeMessage(queue string) { m.large.WithLabelValues(queue).Inc() }

// DroppedField counts an accepted webhook from which an optional field was dropped. field is a
// path of the allow-list, without indexes; rule is a code.
func (m *Metrics) DroppedField(source, field, rule string) {
	m.dropped.WithLabelValues(source, field, rule).Inc()
}

// Unconfirmed counts a webhook that the broker did not confirm. cause is a code of
// contract.PublishCause.
func (m *Metrics) Unconfirmed(queue, cause string) { m.unsent.WithLabelValues(queue, cause).Inc() }

// Unlimited counts a message that was taken although a limit, rate or backlog, was unknown.
func (m *Metrics) Unlimited(queue, limit string) { m.unlimited.WithLabelValues(queue, limit).Inc() }

// Backlog reports how many messages of a queue wait in the broker.
func (m *Metrics) Backlog(queue string, messages int64) {
	m.waiting.WithLabelValues(queue).Set(float64(messages))
}

// Delivery counts one answered delivery. reason is a code; for a processed event it is the
// handler's result.
func (m *Metrics) Delivery(queue, outcome, reason string, took time.Duration) {
	m.deliveries.WithLabelValues(queue, outcome, reason).Inc()
	m.handling.WithLabelValues(queue).Observe(took.Seconds())
}

// Outbox reports a run of the outbox relay: the published messages, the unfinished ordering keys, and the age
// of the oldest message left.
func (m *Metrics) Outbox(published, failed int, oldest time.Duration) {
	m.relayed.Add(float64(published))
	m.stuck.Add(float64(failed))
	m.oldest.Set(oldest.Seconds())
}

// Delayed reports a run of release-delayed: the published messages, the unfinished ordering keys, and by how
// long the oldest message left is overdue.
func (m *Metrics) Delayed(released, failed int, overdue time.Duration) {
	m.released.Add(float64(released))
	m.kept.Add(float64(failed))
	m.overdue.Set(overdue.Seconds())
}

// DeadLetters reports how many dead letters of a queue are open, and the age of the oldest.
func (m *Metrics) DeadLetters(queue string, open int64, oldest time.Duration) {
	m.open.WithLabelValues(queue).Set(float64(open))
	m.oldestOpen.WithLabelValues(queue).Set(oldest.Seconds())
}

// Sealed counts the entries of the books that a run has sealed, and reports the unreadable ones, those
// without a record or audit entry, and the age of the oldest entry left.
func (m *Metrics) Sealed(entries, unreadable, unfounded int, oldest time.Duration) {
	m.sealed.Add(float64(entries))
	m.unreadable.Set(float64(unreadable))
	m.unfounded.Set(float64(unfounded))
	m.unsealed.Set(oldest.Seconds())
}

// BooksFindings reports the number of findings of a verification of the books.
func (m *Metrics) BooksFindings(found int64) { m.untrue.Set(float64(found)) }

// Unreadable counts a document that a list left out because it cannot be read.
func (m *Metrics) Unreadable(collection string) { m.skipped.WithLabelValues(collection).Inc() }

// Orphan counts an event that a sweep found.
func (m *Metrics) Orphan(queue string, republished bool) {
	action := "reported"
	if republished {
		action = "republished"
	}
	m.orphans.WithLabelValues(queue, action).Inc()
}

// scrapes bounds the concurrent requests for metrics, because each reads every series.
const scrapes = 8

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes})
}

// NewLogger returns a logger that writes one JSON object a line, with Cloud
// Logging's names for time, severity and message.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, attr slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return attr
			}
			switch attr.Key {
			case slog.MessageKey:
				attr.Key = "message"
			case slog.LevelKey:
				attr.Key = "severity"
				if level, ok := attr.Value.Any().(slog.Level); ok { // a text is faster to write than a level
					attr.Value = slog.StringValue(strings.Replace(level.String(), "WARN", "WARNING", 1))
				}
			}
			return attr
		},
	}))
}
