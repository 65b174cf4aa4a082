# The rules of the catalog; all mistakes are reported at once. The bounds are those of the
# Go loader, which also gives the reasons.

locals {
  topic_pattern = "^[a-z][a-z0-9-]{2,245}$"
  alias_pattern = "^[a-z][a-z0-9_.:-]{0,99}$"
  routing       = "^([A-Za-z0-9_-]+|[*]|#)([.]([A-Za-z0-9_-]+|[*]|#))*$"
  topic_rule    = "must be 3 to 246 of a-z, 0-9 and -, begin with a letter, and not with goog"

  queue_keys = concat(keys(local.zero), [
    "id", "alias", "description", "topic", "bindings", "ordering_key", "priority", "pool", "handlers", "retry_policy", "dead_letter", "batch", "rate", "max_backlog",
  ])
  policy_keys = concat(keys(local.growth), ["schedule"])
  letter_keys = ["drop", "aliases", "retention", "alert_above", "oldest_alert", "warn_above", "oldest_warn"]

  # Durations by path, for each queue: as the file has them, in seconds, and as shown.
  durations = [
    for q in local.filled : merge(
      { for key in ["lease", "handler_timeout", "message_ttl", "message_retention_duration", "remember_for", "oldest_alert", "slot_wait", "nack_budget"] : key => q[key] },
      { "dead_letter.retention" = q.dead_letter.retention, "dead_letter.oldest_alert" = q.dead_letter.oldest_alert, "dead_letter.oldest_warn" = q.dead_letter.oldest_warn },
      { for type, h in q.handlers : "handlers.${type}.timeout" => try(h.timeout, q.handler_timeout) },
    )
  ]
  seconds = [for d in local.durations : { for path, text in d : path => try(tonumber(trimsuffix(text, "s")), -1) }]
  shown   = [for s in local.seconds : { for path, n in s : path => "${n}s" }]

  # The numbers of each queue's rate, 0 where it has none.
  counts_of = [for q in local.filled : { per_second = try(q.rate.per_second, 0), per_user = try(q.rate.per_user, 0) }]

  # Each rule of a queue: its place, its text, and whether the queue keeps it.
  rules = [
    for i, q in local.filled : concat(
      [
        { ok = can(regex(local.topic_pattern, q.id)) && !startswith(q.id, "goog"), path = "id", what = local.topic_rule },
        { ok = q.alias == "" || can(regex(local.alias_pattern, q.alias)), path = "alias", what = "must be at most 100 of a-z, 0-9 and _ . : -" },
        { ok = q.description != "", path = "description", what = "is missing" },
        { ok = contains(["payment.v1", "envelope.v1", "message.v1"], q.contract), path = "contract", what = "must be payment.v1, envelope.v1 or message.v1" },
        { ok = contains(["high", "normal", "low"], q.priority), path = "priority", what = "must be high, normal or low" },
        { ok = can(regex("^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$", q.pool)), path = "pool", what = "must be at most 40 of a-z, 0-9 and -, begin with a letter, and not end with -" },
        { ok = q.topic == "" || contains([for t in local.shared_topics : t.id], q.topic), path = "topic", what = "no shared topic has the id ${q.topic}" },
        { ok = q.topic == "" || length(local.bindings[i]) > 0, path = "bindings", what = "a queue on a shared topic needs some; # takes all" },
        {
          ok   = can(concat(q.bindings, [])) && alltrue([for p in local.bindings[i] : can(regex(local.routing, p)) && length(p) <= 128]) && length(distinct(local.bindings[i])) == length(local.bindings[i])
          path = "bindings", what = "must list patterns of words, * and # joined by dots, each once"
        },
        { ok = alltrue([for part in q.ordering_key : can(regex("^[a-z][a-z0-9_]{0,63}$", part))]), path = "ordering_key", what = "must list names of fields" },
        { ok = try(1 <= q.max_attempts && q.max_attempts <= 50, false), path = "max_attempts", what = "must be 1 to 50" },
        { ok = try(10 <= q.ack_deadline_seconds && q.ack_deadline_seconds <= 600, false), path = "ack_deadline_seconds", what = "must be 10 to 600" },
        { ok = try(local.seconds[i].handler_timeout > 0, false), path = "handler_timeout", what = "must be above 0" },
        { ok = try(local.seconds[i].handler_timeout < q.ack_deadline_seconds, false), path = "ack_deadline_seconds", what = "must be above handler_timeout, ${local.shown[i].handler_timeout}" },
        { ok = try(q.ack_deadline_seconds <= local.seconds[i].lease, false), path = "lease", what = "must be at least ack_deadline_seconds" },
        { ok = 600 <= local.seconds[i].message_retention_duration && local.seconds[i].message_retention_duration <= 2678400, path = "message_retention_duration", what = "must be 600s to 2678400s" },
        { ok = local.seconds[i].message_ttl <= local.seconds[i].message_retention_duration, path = "message_ttl", what = "must be at most message_retention_duration" },
        { ok = local.seconds[i].remember_for >= 259200 || local.seconds[i].remember_for == 0, path = "remember_for", what = "must be at least 259200s, 72 hours, or 0s, which is no record" },
        {
          ok = local.seconds[i].remember_for > 0 || try(
            length(q.ordering_key) == 0 && q.max_attempts == 1 && q.dead_letter.drop && q.on_corrected == "refuse" &&
            alltrue([for type, h in q.handlers : try(h.max_attempts, 1) == 1 && length(local.emits[i][type]) == 0]),
          false)
          path = "remember_for", what = "must be above 0s unless the queue is unordered, tries once, drops what fails, refuses corrections, and emits nothing"
        },
        { ok = local.seconds[i].remember_for >= local.seconds[i].message_retention_duration || local.seconds[i].remember_for == 0, path = "remember_for", what = "must be at least message_retention_duration" },
        { ok = try(1 <= q.concurrency && q.concurrency <= 1000, false), path = "concurrency", what = "must be 1 to 1000" },
        { ok = try(alltrue([for path, n in local.seconds[i] : local.seconds[i].slot_wait + n < q.ack_deadline_seconds || n >= q.ack_deadline_seconds if endswith(path, "timeout")]) && local.seconds[i].slot_wait >= 0, false), path = "slot_wait", what = "must be 0 or more, and with the longest timeout below ack_deadline_seconds, ${q.ack_deadline_seconds}s" },
        { ok = local.seconds[i].nack_budget <= 3600, path = "nack_budget", what = "must be 0s, which is no limit, to 3600s" },
        { ok = try(0 <= q.min_instances && q.min_instances <= q.max_instances, false), path = "min_instances", what = "must be 0 to max_instances" },
        { ok = try(1 <= q.max_instances && q.max_instances <= 1000, false), path = "max_instances", what = "must be 1 to 1000" },
        { ok = try(q.backlog_alert_above >= 0, false), path = "backlog_alert_above", what = "must not be negative" },
        { ok = try(q.backlog_warn_above == 0 || (0 < q.backlog_warn_above && q.backlog_warn_above < q.backlog_alert_above), false), path = "backlog_warn_above", what = "must be 0, which is none, or below backlog_alert_above" },
        { ok = try(local.seconds[i].oldest_alert >= local.broker[i].maximum + q.ack_deadline_seconds, false), path = "oldest_alert", what = "must be at least the broker's longest wait and the attempt after it" },
        { ok = local.seconds[i].oldest_alert < local.seconds[i].message_ttl || local.seconds[i].message_ttl == 0, path = "oldest_alert", what = "must be below message_ttl, ${local.shown[i].message_ttl}" },
        { ok = local.seconds[i].oldest_alert < local.seconds[i].message_retention_duration, path = "oldest_alert", what = "must be below message_retention_duration, ${local.shown[i].message_retention_duration}" },
        { ok = contains(["ack", "reject"], q.on_terminal), path = "on_terminal", what = "must be ack or reject" },
        { ok = contains(["refuse", "accept"], q.on_corrected), path = "on_corrected", what = "must be refuse or accept" },
        { ok = contains(["event_id", "idempotency_key"], q.dedupe_by), path = "dedupe_by", what = "must be event_id or idempotency_key" },
        { ok = q.dedupe_by != "idempotency_key" || q.contract == "envelope.v1", path = "dedupe_by", what = "must be event_id: a ${q.contract} body names no idempotency key" },
        { ok = !can(q.batch) || try(2 <= q.batch.size && q.batch.size <= q.concurrency, false), path = "batch.size", what = "must be 2 to concurrency" },
        { ok = !can(q.batch) || try(0 < tonumber(trimsuffix(q.batch.wait, "s")) && tonumber(trimsuffix(q.batch.wait, "s")) <= 1 && alltrue([for path, n in local.seconds[i] : tonumber(trimsuffix(q.batch.wait, "s")) < n if endswith(path, "timeout")]), false), path = "batch.wait", what = "must be above 0s, at most 1s, and below the shortest timeout" },
        { ok = length(setsubtract(try(keys(q.rate), []), ["per_second", "per_user", "user"])) == 0, path = "rate", what = "has a key that is not known" },
        { ok = !can(q.rate) || try(local.counts_of[i].per_second == floor(local.counts_of[i].per_second) && 0 <= local.counts_of[i].per_second && local.counts_of[i].per_second <= 100000, false), path = "rate.per_second", what = "must be 0, which is no limit, to 100000" },
        { ok = !can(q.rate) || try(local.counts_of[i].per_user == floor(local.counts_of[i].per_user) && 0 <= local.counts_of[i].per_user && local.counts_of[i].per_user <= (local.counts_of[i].per_second == 0 ? 100 : min(100, local.counts_of[i].per_second)), false), path = "rate.per_user", what = "must be 0, which is no limit, to 100, and at most per_second where that is set" },
        { ok = !can(q.rate) || try((local.counts_of[i].per_user > 0) == (length(try(q.rate.user, [])) > 0), false), path = "rate.user", what = "must list names of fields where per_user is above 0, and only there" },
        { ok = !can(q.max_backlog) || try(length(setsubtract(keys(q.max_backlog), ["messages", "on_full"])) == 0 && q.max_backlog.messages > 0 && floor(q.max_backlog.messages) == q.max_backlog.messages && contains(["refuse", "alert"], q.max_backlog.on_full), false), path = "max_backlog", what = "must have messages above 0, and on_full refuse or alert" },
        { ok = !can(q.max_backlog) || try(q.backlog_alert_above < q.max_backlog.messages, false), path = "max_backlog.messages", what = "must be above backlog_alert_above" },
        { ok = !q.enabled || length(q.handlers) > 0, path = "handlers", what = "an enabled queue needs some" },
      ],
      q.dead_letter.drop ? [
        { ok = length(setsubtract(keys(try(local.declared[i].dead_letter, {})), ["drop"])) == 0, path = "dead_letter.drop", what = "a queue that drops has no aliases, retention, alerts or warnings" },
        ] : [
        { ok = 1209600 <= local.seconds[i]["dead_letter.retention"] && local.seconds[i]["dead_letter.retention"] <= 2678400, path = "dead_letter.retention", what = "must be 1209600s, 14 days, to 2678400s" },
        { ok = try(alltrue([for name in q.dead_letter.aliases : can(regex(local.alias_pattern, name))]), false), path = "dead_letter.aliases", what = "must be names of at most 100 of a-z, 0-9 and _ . : -" },
        { ok = try(q.dead_letter.alert_above >= 0, false), path = "dead_letter.alert_above", what = "must not be negative" },
        { ok = try(0 <= q.dead_letter.warn_above && q.dead_letter.warn_above <= max(0, q.dead_letter.alert_above), false), path = "dead_letter.warn_above", what = "must be 0 to alert_above" },
        { ok = local.seconds[i]["dead_letter.oldest_warn"] == 0 || local.seconds[i]["dead_letter.oldest_warn"] < local.seconds[i]["dead_letter.oldest_alert"], path = "dead_letter.oldest_warn", what = "must be 0s, which is none, or below oldest_alert" },
        { ok = local.seconds[i].remember_for >= local.seconds[i]["dead_letter.retention"], path = "remember_for", what = "must be at least dead_letter.retention" },
      ],
      [for path, text in local.durations[i] : { ok = can(regex(local.seconds_pattern, text)), path = path, what = "must be a duration in seconds, such as \"600s\"" }],
      flatten([
        for type, h in q.handlers : [
          { ok = can(regex("^[a-z*#][a-z0-9_.*#-]{0,63}$", type)) && can(regex(local.routing, type)), path = "handlers.${type}", what = "must be an event type, or a pattern of them" },
          { ok = can(h.post) || can(regex("^[a-z][a-z0-9_.-]{0,63}$", h.name)), path = "handlers.${type}.name", what = "must be a handler's name" },
          { ok = try(1 <= h.max_attempts && h.max_attempts <= 50, !can(h.max_attempts)), path = "handlers.${type}.max_attempts", what = "must be 1 to 50" },
          { ok = try(0 < local.seconds[i]["handlers.${type}.timeout"] && local.seconds[i]["handlers.${type}.timeout"] < q.ack_deadline_seconds, false), path = "handlers.${type}.timeout", what = "must be above 0 and below ack_deadline_seconds" },
          { ok = !can(h.emits) || can(concat(h.emits, [])), path = "handlers.${type}.emits", what = "must be a list" },
          { ok = !can(h.emits_if_run) || can(concat(h.emits_if_run, [])), path = "handlers.${type}.emits_if_run", what = "must be a list" },
          { ok = length(setsubtract(local.emits_if_run[i][type].all, local.filled[*].id)) == 0, path = "handlers.${type}.emits_if_run", what = "no queue has the id ${join(", ", setsubtract(local.emits_if_run[i][type].all, local.filled[*].id))}" },
          { ok = try(can(regex(local.seconds_pattern, h.waits_for)) && tonumber(trimsuffix(h.waits_for, "s")) <= 2592000, !can(h.waits_for)), path = "handlers.${type}.waits_for", what = "must be a duration of at most 2592000s" },
          { ok = !can(h.calls) || can(concat(h.calls, [])), path = "handlers.${type}.calls", what = "must be a list" },
          { ok = length(distinct(local.emits[i][type])) == length(local.emits[i][type]), path = "handlers.${type}.emits", what = "lists a topic twice" },
          { ok = length(setsubtract(keys(h), ["name", "post", "emits", "emits_if_run", "waits_for", "calls", "max_attempts", "timeout", "retry_policy"])) == 0, path = "handlers.${type}", what = "has a key that is not known" },
        ]
      ]),
      flatten([
        for type, ids in local.emits[i] : [
          for id in ids : {
            path = "handlers.${type}.emits"
            what = !contains(local.topics, id) ? "no queue or topic has the id ${id}" : contains(local.filled[*].id, id) ? "queue ${id} ${contains(flatten(local.enabled_names), id) ? "does not run here: name it too" : "is not enabled"}" : "no enabled queue takes messages of topic ${id}"
            ok   = contains(local.topics, id) && (!q.enabled || contains(concat(local.taken, local.enabled, local.outbound_topics[*].id), id))
          }
        ]
      ]),
      flatten([
        for type, p in local.policies[i] : [
          { ok = length(setsubtract(keys(p), local.policy_keys)) == 0, path = type == "" ? "retry_policy" : "handlers.${type}.retry_policy", what = "has a key that is not known" },
          {
            path = type == "" ? "retry_policy" : "handlers.${type}.retry_policy"
            what = "must grow from minimum_backoff to maximum_backoff, above 0 and at most 86400s, by a multiplier of 1 to 10, with at most that much jitter; or list a schedule alone, no longer than max_attempts and never shorter than the wait before"
            ok = try(can(p.schedule)
              ? length(p.schedule) > 0 && length(p.schedule) <= try(q.handlers[type].max_attempts, q.max_attempts) &&
              alltrue([for wait in p.schedule : can(regex(local.seconds_pattern, wait))]) &&
              alltrue([for k, wait in local.waits[i][type].list : wait <= 86400 && wait >= local.waits[i][type].list[max(0, k - 1)]])
              : alltrue([for key in ["minimum_backoff", "maximum_backoff", "jitter"] : can(regex(local.seconds_pattern, p[key]))]) &&
              0 <= local.waits[i][type].base && local.waits[i][type].base <= local.waits[i][type].most &&
              0 < local.waits[i][type].most && local.waits[i][type].most <= 86400 &&
              1 <= p.multiplier && p.multiplier <= 10 &&
              tonumber(trimsuffix(p.jitter, "s")) <= local.waits[i][type].most,
            false)
          },
        ]
      ]),
      [
        {
          ok = alltrue([
            for p in concat([try(local.declared[i].retry_policy, {})], [for h in values(q.handlers) : try(h.retry_policy, {})]) :
            !can(p.schedule) || length(keys(p)) == 1
          ])
          path = "retry_policy", what = "a schedule stands alone, without the other keys"
        },
        { ok = length(setsubtract(keys(local.declared[i]), local.queue_keys)) == 0, path = "", what = "unknown key ${join(", ", setsubtract(keys(local.declared[i]), local.queue_keys))}" },
        { ok = length(setsubtract(keys(q.dead_letter), local.letter_keys)) == 0, path = "dead_letter", what = "has a key that is not known" },
      ],
    )
  ]

  # The topics and queues that can be published to, by id.
  topics = concat([for q in local.filled : q.id], [for t in concat(local.shared_topics, local.outbound_topics) : t.id])

  names = concat(
    local.topics, [for q in local.filled : q.alias if q.alias != ""],
    [for q in local.filled : "${q.id}-dlq" if !q.dead_letter.drop],
    flatten([for q in local.filled : try(tolist(q.dead_letter.aliases), []) if !q.dead_letter.drop]),
    [for t in concat(local.shared_topics, local.outbound_topics) : t.alias if t.alias != ""],
  )

  mistakes = concat(
    local.target_mistakes,
    [for name in var.queues : "queues: no enabled queue has the id or alias ${name}" if !contains(flatten(local.enabled_names), name)],
    [
      for names in local.enabled_names : "queues: queue ${names[0]} is named twice"
      if length([for name in var.queues : name if contains(names, name)]) > 1
    ],
    length(local.declared) == 0 ? ["queues.yaml: queues: there is none"] : [],
    [for key in setsubtract(keys(local.file), ["tasks_pool", "defaults", "queues", "outbound_topics"]) : "queues.yaml: ${key}: unknown key"],
    [for name in [try(local.file.tasks_pool, null)] : "queues.yaml: tasks_pool: no enabled queue is in pool ${try(tostring(name), "")}" if can(local.file.tasks_pool) && !try(contains(local.enabled_pools, name), false)],
    [for key in setsubtract(keys(local.defaults), concat(keys(local.zero), ["retry_policy", "dead_letter"])) : "queues.yaml: defaults.${key}: unknown key"],
    flatten([
      for i, rules in local.rules : [
        for rule in rules : "queues.yaml: queue ${try(local.filled[i].id, i)}: ${rule.path}${rule.path == "" ? "" : ": "}${rule.what}" if !rule.ok
      ]
    ]),
    [for name in distinct(local.names) : "queues.yaml: ${name} is named twice" if length([for n in local.names : n if n == name]) > 1],
    [for t in concat(local.shared_topics, local.outbound_topics) : "topic ${t.id}: id: ${local.topic_rule}" if !can(regex(local.topic_pattern, t.id)) || startswith(t.id, "goog")],
    [for t in concat(local.shared_topics, local.outbound_topics) : "topic ${t.id}: alias: must be at most 100 of a-z, 0-9 and _ . : -" if t.alias != "" && !can(regex(local.alias_pattern, t.alias))],
    [for t in concat(local.shared_topics, local.outbound_topics) : "topic ${t.id}: description: is missing" if t.description == ""],
    [for id, p in local.expanded.products : "products.yaml: product ${id}: points: must be 1 to 1000000000" if !try(1 <= p.points && p.points <= 1000000000 && floor(p.points) == p.points, false)],
    length(local.sources) == 0 ? ["sources.yaml: sources: there is none"] : [],
    flatten([
      for name, s in local.expanded.sources : concat(
        can(regex("^[a-z][a-z0-9_.-]{0,63}$", s.scheme)) ? [] : ["sources.yaml: source ${name}: scheme: must be generic, standard or a provider"],
        can(regex("^WEBHOOK_[A-Z0-9_]{3,56}$", s.secret_variable)) ? [] : ["sources.yaml: source ${name}: secret_variable: must be an environment variable that begins with WEBHOOK_"],
        s.api_key_variable == "" || can(regex("^WEBHOOK_[A-Z0-9_]{3,56}$", s.api_key_variable)) && s.api_key_variable != s.secret_variable ? [] : ["sources.yaml: source ${name}: api_key_variable: must be an environment variable that begins with WEBHOOK_, and not that of the secrets"],
        try(1024 <= s.max_body_bytes && s.max_body_bytes <= 1048576, false) ? [] : ["sources.yaml: source ${name}: max_body_bytes: must be 1024 to 1048576"],
        try((s.rate_per_second > 0) == (s.burst > 0) && s.rate_per_second >= 0, false) ? [] : ["sources.yaml: source ${name}: burst: must be above 0 where rate_per_second is, and only there"],
        length(s.events) > 0 || length(var.queues) > 0 ? [] : ["sources.yaml: source ${name}: events: there is none"],
        [
          for type, id in s.events : "sources.yaml: source ${name}: events.${type}: no enabled queue has the id ${id}"
          if !contains([for q in local.filled : q.id if q.enabled], id)
        ],
      )
    ]),
  )
}
