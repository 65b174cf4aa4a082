# The catalog, read as the Go loader reads it: defaults filled in, names and the
# broker's numbers derived, and every mistake reported at once, before anything is planned.
# The module needs no provider. It sees values, not the file's text, so the Go loader
# (`billhook admin catalog check`) refuses text that YAML readers read differently.

terraform {
  required_version = ">= 1.9"
}

variable "directory" {
  description = "The folder with queues.yaml, products.yaml and sources.yaml, topics.yaml where queues share topics, and targets.yaml where anything is posted."
  type        = string

  validation {
    condition = alltrue([
      for name in ["queues.yaml", "products.yaml", "sources.yaml"] : fileexists("${var.directory}/${name}")
    ])
    error_message = "The folder must hold queues.yaml, products.yaml and sources.yaml."
  }
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
  products = try(yamldecode(file("${var.directory}/products.yaml")).products, {})
  senders  = try(yamldecode(file("${var.directory}/sources.yaml")).sources, {})

  # Where some queues run, a source routes to those alone. One that routes nowhere is left out,
  # unless it is the producers'.
  sources = {
    for name, s in local.senders : name => [s, merge(s, { events = { for type, id in try(s.events, {}) : type => id if contains(local.enabled, id) } })][length(var.queues) == 0 ? 0 : 1]
    if length(var.queues) == 0 || name == "generic" || length(setintersection(values(try(s.events, {})), local.enabled)) > 0
  }

  # The pools of the queues that the file enables, whatever runs.
  enabled_pools = distinct([for q in local.declared : try(q.pool, "") if try(q.enabled, local.defaults.enabled, false)])

  # The queues that the file enables, by id and alias.
  enabled_names = [for q in local.declared : compact([try(q.id, ""), try(q.alias, "")]) if try(q.enabled, local.defaults.enabled, false)]

  defaults  = try(local.file.defaults, {})
  declared  = try([for q in local.file.queues : q], [])
  announced = try([for t in local.file.outbound_topics : t], [])
  exchanges = try([for t in yamldecode(file("${var.directory}/topics.yaml")).topics : t], [])

  # The value of a key that neither the queue nor the defaults name: the zero of its type.
  zero = {
    enabled                    = false
    contract                   = ""
    max_attempts               = 0
    ack_deadline_seconds       = 0
    handler_timeout            = "0s"
    lease                      = "0s"
    message_ttl                = "0s"
    message_retention_duration = "0s"
    remember_for               = "0s"
    concurrency                = 0
    slot_wait                  = "0s"
    min_instances              = 0
    max_instances              = 0
    backlog_alert_above        = 0
    backlog_warn_above         = 0
    oldest_alert               = "0s"
    on_terminal                = ""
    nack_budget                = "0s"
    on_corrected               = "refuse"   # as in Go
    dedupe_by                  = "event_id" # as in Go
    four_eyes                  = false
  }

  # The keys that make a wait grow. A schedule takes none of them.
  growth = { minimum_backoff = "0s", maximum_backoff = "0s", multiplier = 0, jitter = "0s" }

  # A conditional would convert both of its sides to one type; an index does not.
  default_policy = [
    merge(local.growth, try(local.defaults.retry_policy, {})),
    { schedule = try(local.defaults.retry_policy.schedule, []) },
  ][can(local.defaults.retry_policy.schedule) ? 1 : 0]

  # First pass: the queue, completed by the defaults.
  filled = [
    for q in local.declared : merge(
      { id = "", alias = "", description = "", topic = "", bindings = [], ordering_key = [], priority = "", pool = "" },
      local.zero,
      { for key, value in local.defaults : key => value if contains(keys(local.zero), key) },
      q,
      {
        enabled  = try(q.enabled, local.defaults.enabled, false) && (length(var.queues) == 0 || contains(var.queues, try(q.id, "")) || contains(var.queues, try(q.alias, "")))
        handlers = try(q.handlers, {})
        retry_policy = [
          local.default_policy,
          merge(local.growth, { for k, v in local.default_policy : k => v if k != "schedule" }, try(q.retry_policy, {})),
          { schedule = try(q.retry_policy.schedule, []) },
        ][!can(keys(q.retry_policy)) ? 0 : can(q.retry_policy.schedule) ? 2 : 1]
        dead_letter = merge(
          { drop = false, aliases = [], retention = "0s", alert_above = 0, oldest_alert = "0s", warn_above = 0, oldest_warn = "0s" },
          try(local.defaults.dead_letter, {}), try(q.dead_letter, {}),
        )
      },
    )
  ]

  # Every duration as a number of seconds, where it is one.
  seconds_pattern = "^(0|[1-9][0-9]{0,8})([.][0-9]{1,3})?s$"

  policies = [
    for q in local.filled : merge(
      { "" = q.retry_policy },
      {
        for type, h in q.handlers : type => [
          q.retry_policy,
          merge(local.growth, { for k, v in q.retry_policy : k => v if k != "schedule" }, try(h.retry_policy, {})),
          { schedule = try(h.retry_policy.schedule, []) },
        ][!can(keys(h.retry_policy)) ? 0 : can(h.retry_policy.schedule) ? 2 : 1]
      },
    )
  ]

  # Each policy as the expanded catalog shows it, and its waits as numbers.
  waits = [
    for policies in local.policies : {
      for type, p in policies : type => [
        {
          base = try(tonumber(trimsuffix(p.minimum_backoff, "s")), -1)
          most = try(tonumber(trimsuffix(p.maximum_backoff, "s")), -1)
          list = [for wait in try(p.schedule, []) : try(tonumber(trimsuffix(wait, "s")), -1)]
        }
      ][0]
    }
  ]

  shown_policies = [
    for policies in local.policies : {
      for type, p in policies : type => [
        {
          minimum_backoff = try("${tonumber(trimsuffix(p.minimum_backoff, "s"))}s", "")
          maximum_backoff = try("${tonumber(trimsuffix(p.maximum_backoff, "s"))}s", "")
          multiplier      = try(tonumber(p.multiplier), 0)
          jitter          = try("${tonumber(trimsuffix(p.jitter, "s"))}s", "")
        },
        { schedule = [for wait in try(p.schedule, []) : try("${tonumber(trimsuffix(wait, "s"))}s", "")] },
      ][can(p.schedule) ? 1 : 0]
    }
  ]

  # By Pub/Sub's documentation a retry policy waits 0 to 600 s and a dead-letter policy
  # allows 5 to 100 attempts. The broker's waits go from the queue's first to the longest
  # possible, and its limit is the highest: both are for outages, and must outlast them.
  broker = [
    for i, q in local.filled : {
      minimum = min(600, length(local.waits[i][""].list) > 0
        ? local.waits[i][""].list[min(1, length(local.waits[i][""].list) - 1)]
      : min(local.waits[i][""].base, local.waits[i][""].most))
      maximum  = 600
      attempts = 100
    }
  ]

  # The subscription's filter is the first of these with at most 256 bytes, Pub/Sub's limit:
  # one condition for each pattern; the prefix that all patterns have; all messages that are
  # for no other queue alone; all messages.
  bindings = [for q in local.filled : try([for p in q.bindings : tostring(p)], [])]

  # The common beginning of all keys that a pattern holds. A # after a dot may stand for no
  # word at all, and then the dot is missing too.
  prefixes = [
    for patterns in local.bindings : [
      for p in patterns : strcontains(split("*", p)[0], "#") ? trimsuffix(split("#", p)[0], ".") : split("*", p)[0]
    ]
  ]

  filters = [
    for i, q in local.filled : length(local.bindings[i]) == 0 ? "" : [
      for f in concat(
        contains(local.bindings[i], "#") ? [] : [
          for terms in [
            [
              for k, p in local.bindings[i] : !strcontains(p, "*") && !strcontains(p, "#") ? "attributes.routing_key = \"${p}\"" :
              local.prefixes[i][k] == "" ? "attributes:routing_key" : "hasPrefix(attributes.routing_key, \"${local.prefixes[i][k]}\")"
            ],
            [
              for shared in [
                [
                  for n in range(length(local.prefixes[i][0]), -1, -1) : substr(local.prefixes[i][0], 0, n)
                  if alltrue([for prefix in local.prefixes[i] : startswith(prefix, substr(local.prefixes[i][0], 0, n))])
                ][0]
              ] : shared == "" ? "attributes:routing_key" : "hasPrefix(attributes.routing_key, \"${shared}\")"
            ],
          ] :
          "attributes.queue = \"${q.id}\" OR (NOT attributes:queue AND (${join(" OR ", distinct(concat(q.topic == "" ? ["NOT attributes:routing_key"] : [], terms)))}))"
        ],
        ["attributes.queue = \"${q.id}\" OR NOT attributes:queue", ""],
      ) : f if length(f) <= 256
    ][0]
  ]

  # What a handler emits to where it runs, and as much of it as does.
  emits_if_run = [
    for q in local.filled : {
      for type, h in q.handlers : type => {
        all  = try([for id in h.emits_if_run : tostring(id)], [])
        here = try([for id in h.emits_if_run : id if contains([for o in local.filled : o.id if o.enabled], id)], [])
      }
    }
  ]

  emits = [for i, q in local.filled : { for type, h in q.handlers : type => concat(try(concat(h.emits, []), []), local.emits_if_run[i][type].here) }]

  queues = [
    for i, q in local.filled : {
      id          = q.id
      alias       = q.alias
      description = q.description
      enabled     = q.enabled
      contract    = q.contract
      bindings    = [for p in local.bindings[i] : p]
      filter      = local.filters[i]
      # tolist would make a list of an unknown type; a for expression keeps the elements.
      ordering_key = [for part in q.ordering_key : part]
      priority     = q.priority
      pool         = q.pool
      handlers = {
        for type, h in q.handlers : type => {
          name         = try(h.name, "post:${h.post.target}${h.post.path}", "")
          post         = { target = try(h.post.target, ""), path = try(h.post.path, ""), reconcile = try(h.post.reconcile, ""), form = try(h.post.form, "") }
          emits        = local.emits[i][type]
          emits_if_run = local.emits_if_run[i][type].all
          waits_for    = try("${tonumber(trimsuffix(h.waits_for, "s"))}s", "0s")
          calls        = local.calls[i][type]
          max_attempts = try(h.max_attempts, q.max_attempts)
          timeout      = local.shown[i]["handlers.${type}.timeout"]
          retry_policy = local.shown_policies[i][type]
        }
      }
      max_attempts               = q.max_attempts
      retry_policy               = local.shown_policies[i][""]
      ack_deadline_seconds       = q.ack_deadline_seconds
      lease                      = local.shown[i].lease
      handler_timeout            = local.shown[i].handler_timeout
      message_ttl                = local.shown[i].message_ttl
      message_retention_duration = local.shown[i].message_retention_duration
      remember_for               = local.shown[i].remember_for
      concurrency                = q.concurrency
      slot_wait                  = local.shown[i].slot_wait
      min_instances              = q.min_instances
      max_instances              = q.max_instances
      backlog_alert_above        = q.backlog_alert_above
      backlog_warn_above         = q.backlog_warn_above
      oldest_alert               = local.shown[i].oldest_alert
      on_terminal                = q.on_terminal
      nack_budget                = local.shown[i].nack_budget
      on_corrected               = q.on_corrected
      dedupe_by                  = q.dedupe_by
      four_eyes                  = q.four_eyes
      batch                      = { size = try(q.batch.size, 0), wait = try("${tonumber(trimsuffix(q.batch.wait, "s"))}s", "0s") }
      rate                       = { per_second = try(q.rate.per_second, 0), per_user = try(q.rate.per_user, 0), user = try([for part in q.rate.user : tostring(part)], []) }
      max_backlog                = { messages = try(q.max_backlog.messages, 0), on_full = try(q.max_backlog.on_full, "") }
      enable_message_ordering    = length(q.ordering_key) > 0
      topic                      = local.topic_of[q.id]
      shared                     = q.topic != ""
      push_subscription          = "${q.id}-push"
      push_path                  = "/push/${q.id}"
      broker = {
        minimum_backoff       = "${local.broker[i].minimum}s"
        maximum_backoff       = "${local.broker[i].maximum}s"
        max_delivery_attempts = local.broker[i].attempts
      }
      dead_letter = [
        {
          drop              = false
          topic             = "${q.id}-dlq"
          aliases           = [for name in q.dead_letter.aliases : name]
          retention         = local.shown[i]["dead_letter.retention"]
          alert_above       = q.dead_letter.alert_above
          oldest_alert      = local.shown[i]["dead_letter.oldest_alert"]
          warn_above        = q.dead_letter.warn_above
          oldest_warn       = local.shown[i]["dead_letter.oldest_warn"]
          hold_subscription = "${q.id}-dlq-hold"
          push_subscription = "${q.id}-dlq-push"
          push_path         = "/push/dead-letters/${q.id}"
        },
        { drop = true },
      ][q.dead_letter.drop ? 1 : 0]
    }
  ]

  outbound_topics = [
    for t in local.announced : { id = try(t.id, ""), alias = try(t.alias, ""), description = try(t.description, "") }
  ]
  shared_topics = [
    for t in local.exchanges : { id = try(t.id, ""), alias = try(t.alias, ""), description = try(t.description, "") }
  ]

  # The topic of each id that an emission may name.
  topic_of = zipmap(
    concat(local.filled[*].id, local.shared_topics[*].id, local.outbound_topics[*].id),
    concat([for q in local.filled : q.topic == "" ? q.id : q.topic], local.shared_topics[*].id, local.outbound_topics[*].id),
  )

  expanded = {
    queues          = local.queues
    topics          = local.shared_topics
    outbound_topics = local.outbound_topics
    products        = { for id, p in local.products : id => { points = try(p.points, 0) } }
    sources = {
      for name, s in local.sources : name => {
        scheme           = try(s.scheme, "")
        secret_variable  = try(s.secret_variable, "")
        api_key_variable = try(s.api_key_variable, "")
        max_body_bytes   = try(s.max_body_bytes, 0)
        rate_per_second  = try(s.rate_per_second, 0)
        burst            = try(s.burst, 0)
        events           = try(s.events, {})
      }
    }
    targets   = local.targets
    endpoints = local.endpoints

    tasks_pool = local.tasks_pool
  }
}
