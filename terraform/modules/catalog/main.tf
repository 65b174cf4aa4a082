# The catalog, as far as Google Cloud needs it: defaults filled in, names and the broker's numbers derived. A
# test holds it to the Go loader's reading. `billhook admin catalog check` finds what is wrong in the files;
# only which queues an installation names is checked here.

variable "directory" {
  description = "The folder of the catalog: targets.yaml and topics.yaml may be missing there."
  type        = string
}

variable "queues" {
  description = "Which of the enabled queues run, by id or alias; without any, all of them."
  type        = list(string)
  default     = []
}

variable "kept" {
  description = "Queues, by id, that do not run and keep their topic and subscriptions."
  type        = list(string)
  default     = []
}

variable "tasks_pool" {
  description = "The pool whose worker runs the tasks; null is the file's."
  type        = string
  default     = null
}

variable "installation" {
  description = "The installation's name, which stands before the ids of topics and subscriptions in the project; empty is none."
  type        = string
  default     = ""
}

locals {
  file     = yamldecode(file("${var.directory}/queues.yaml"))
  sources  = yamldecode(file("${var.directory}/sources.yaml"))
  targets  = try(yamldecode(file("${var.directory}/targets.yaml")).targets, {})
  shared   = try(yamldecode(file("${var.directory}/topics.yaml")).topics, [])
  outbound = try(local.file.outbound_topics, [])
  defaults = try(local.file.defaults, {})
  declared = local.file.queues
  prefix   = var.installation == "" ? "" : "${var.installation}-"

  # First pass: each queue completed by the defaults, and whether it runs here.
  filled = [
    for q in local.declared : merge(
      { alias = "", topic = "", bindings = [], ordering_key = [], handlers = {} },
      { enabled = false, min_instances = 0, backlog_alert_above = 0, backlog_warn_above = 0 },
      local.defaults, q,
      {
        enabled = try(q.enabled, local.defaults.enabled, false) && (
          length(var.queues) == 0 || length(setintersection(var.queues, local.names[q.id])) > 0
        )
        dead_letter = merge(
          { drop = false, alert_above = 0, oldest_alert = "0s", warn_above = 0, oldest_warn = "0s" },
          try(local.defaults.dead_letter, {}), try(q.dead_letter, {}),
        )
      },
    )
  ]
  names   = { for q in local.declared : q.id => compact([q.id, try(q.alias, "")]) }
  running = [for q in local.filled : q.id if q.enabled]

  # By Pub/Sub's documentation a retry policy waits 0 to 600 s and a dead-letter policy allows 5 to 100 attempts.
  # The broker's waits go from the queue's first to the longest possible, and its limit is the highest: both are
  # for outages, and must outlast them. The first wait of a schedule is that before the first attempt.
  schedules = [
    for q in local.declared : try(q.retry_policy.schedule, can(q.retry_policy) ? [] : local.defaults.retry_policy.schedule, [])
  ]
  first_waits = [
    for i, q in local.declared : length(local.schedules[i]) > 0
    ? tonumber(trimsuffix(local.schedules[i][min(1, length(local.schedules[i]) - 1)], "s"))
    : min([
      for key in ["minimum_backoff", "maximum_backoff"] :
      tonumber(trimsuffix(try(q.retry_policy[key], local.defaults.retry_policy[key], "0s"), "s"))
    ]...)
  ]

  # The common beginning of all keys that a pattern holds. A # after a dot may stand for no
  # word at all, and then the dot is missing too.
  prefixes = [
    for q in local.filled : [
      for p in q.bindings : strcontains(split("*", p)[0], "#") ? trimsuffix(split("#", p)[0], ".") : split("*", p)[0]
    ]
  ]

  # The subscription's filter is the first of these with at most 256 bytes, Pub/Sub's limit: one condition for
  # each pattern; the prefix that all patterns have; all messages that are for no other queue alone; all messages.
  filters = [
    for i, q in local.filled : length(q.bindings) == 0 ? "" : [
      for f in concat(
        contains(q.bindings, "#") ? [] : [
          for terms in [
            [
              for k, p in q.bindings : !strcontains(p, "*") && !strcontains(p, "#") ? "attributes.routing_key = \"${p}\"" :
              local.prefixes[i][k] == "" ? "attributes:routing_key" : "hasPrefix(attributes.routing_key, \"${local.prefixes[i][k]}\")"
            ],
            [
              for common in [
                [
                  for n in range(length(local.prefixes[i][0]), -1, -1) : substr(local.prefixes[i][0], 0, n)
                  if alltrue([for prefix in local.prefixes[i] : startswith(prefix, substr(local.prefixes[i][0], 0, n))])
                ][0]
              ] : common == "" ? "attributes:routing_key" : "hasPrefix(attributes.routing_key, \"${common}\")"
            ],
          ] :
          "attributes.queue = \"${q.id}\" OR (NOT attributes:queue AND (${join(" OR ", distinct(concat(q.topic == "" ? ["NOT attributes:routing_key"] : [], terms)))}))"
        ],
        ["attributes.queue = \"${q.id}\" OR NOT attributes:queue", ""],
      ) : f if length(f) <= 256
    ][0]
  ]

  queues = {
    for i, q in local.filled : q.id => merge(
      {
        for key in [
          "id", "enabled", "pool", "priority", "concurrency", "min_instances", "max_instances",
          "ack_deadline_seconds", "backlog_alert_above", "backlog_warn_above",
        ] : key => q[key]
      },
      { for key in ["message_retention_duration", "oldest_alert"] : key => "${tonumber(trimsuffix(q[key], "s"))}s" },
      {
        topic                   = "${local.prefix}${local.topic_of[q.id]}"
        shared_topic            = q.topic
        push_subscription       = "${local.prefix}${q.id}-push"
        push_path               = "/push/${q.id}"
        filter                  = local.filters[i]
        enable_message_ordering = length(q.ordering_key) > 0
        handlers                = distinct([for h in values(q.handlers) : h.name if can(h.name)])
        emits                   = local.emits[q.id]
        publishers              = local.publishers[local.topic_of[q.id]]
        max_backlog             = { messages = try(q.max_backlog.messages, 0) }
        rate                    = { for key in ["per_second", "per_user"] : key => try(q.rate[key], 0) }
        broker = {
          minimum_backoff       = "${min(600, local.first_waits[i])}s"
          maximum_backoff       = "600s"
          max_delivery_attempts = 100
        }
        # A conditional would convert both of its sides to one type; an index does not.
        dead_letter = [
          {
            drop              = false
            topic             = "${local.prefix}${q.id}-dlq"
            hold_subscription = "${local.prefix}${q.id}-dlq-hold"
            push_subscription = "${local.prefix}${q.id}-dlq-push"
            push_path         = "/push/dead-letters/${q.id}"
            alert_above       = q.dead_letter.alert_above
            warn_above        = q.dead_letter.warn_above
            retention         = try("${tonumber(trimsuffix(q.dead_letter.retention, "s"))}s", "")
            oldest_alert      = "${tonumber(trimsuffix(q.dead_letter.oldest_alert, "s"))}s"
            oldest_warn       = "${tonumber(trimsuffix(q.dead_letter.oldest_warn, "s"))}s"
          },
          { drop = true },
        ][q.dead_letter.drop ? 1 : 0]
      },
    )
  }
}
