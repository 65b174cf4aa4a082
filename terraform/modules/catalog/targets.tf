# The services that are posted to, read and checked as the Go loader does.

locals {
  posted = try(yamldecode(file("${var.directory}/targets.yaml")).targets, {})

  targets = {
    for name, t in local.posted : name => {
      description     = try(t.description, "")
      url_variable    = try(t.url_variable, "")
      secret_variable = try(t.secret_variable, "")
      scheme          = try(t.scheme, "")
      internal        = try(t.internal, false)
      timeouts = {
        for key in ["connect", "total"] : key => try("${tonumber(trimsuffix(t.timeouts[key], "s"))}s", "0s")
      }
      concurrency     = try(t.concurrency, 0)
      rate_per_second = try(t.rate_per_second, 0)
      burst           = try(t.burst, 0)
      breaker = {
        failures = try(t.breaker.failures, 0)
        rest     = try("${tonumber(trimsuffix(t.breaker.rest, "s"))}s", "0s")
      }
    }
  }

  # What holds for every address that a third party registers.
  registered = try(yamldecode(file("${var.directory}/targets.yaml")).endpoints, {})
  endpoints = {
    timeouts = {
      for key in ["connect", "total"] : key => try("${tonumber(trimsuffix(local.registered.timeouts[key], "s"))}s", "0s")
    }
    concurrency     = try(local.registered.concurrency, 0)
    rate_per_second = try(local.registered.rate_per_second, 0)
    burst           = try(local.registered.burst, 0)
    breaker = {
      failures = try(local.registered.breaker.failures, 0)
      rest     = try("${tonumber(trimsuffix(local.registered.breaker.rest, "s"))}s", "0s")
    }
    remembered     = try(local.registered.remembered, 0)
    disable_after  = try("${tonumber(trimsuffix(local.registered.disable_after, "s"))}s", "0s")
    old_secret_for = try("${tonumber(trimsuffix(local.registered.old_secret_for, "s"))}s", "0s")
  }

  # What a handler posts, by queue and event type; null is a handler of Go.
  posts = [
    for q in local.filled : {
      for type, h in q.handlers : type => can(keys(h.post)) ? {
        target = try(h.post.target, ""), path = try(h.post.path, ""), reconcile = try(h.post.reconcile, ""), form = try(h.post.form, "")
      } : null
    }
  ]

  # What a handler of Go calls.
  calls = [for q in local.filled : { for type, h in q.handlers : type => try(concat(h.calls, []), []) }]

  # The targets that an enabled queue of a pool posts to or calls.
  targets_of = {
    for pool in distinct([for q in local.filled : q.pool if q.enabled]) : pool => distinct(flatten([
      for i, q in local.filled : concat([for p in values(local.posts[i]) : p.target if p != null], values(local.calls[i])...) if q.enabled && q.pool == pool
    ]))
  }

  # The secrets of each queue, also of one that does not run: its targets' and its sender's. The
  # producers' is the webhook service's own.
  queue_secrets = {
    for i, q in local.filled : q.id => distinct(concat(
      [for name in concat([for p in values(local.posts[i]) : p.target if p != null], flatten(values(local.calls[i]))) : try(local.targets[name].secret_variable, "")],
      compact(flatten([
        for name, s in local.senders : [try(s.secret_variable, ""), try(s.api_key_variable, "")] if name != "generic" && contains(values(try(s.events, {})), q.id)
      ])),
    ))
  }

  # The durations of each target, as the file has them, and the numbers that must be whole.
  target_durations = {
    for name, t in local.posted : name => concat(try(values(t.timeouts), []), try([t.breaker.rest], []))
  }
  target_counts = { for name, t in local.targets : name => [t.concurrency, t.burst, t.breaker.failures] }

  # The question that each path of a target is asked by, once for each way that it is.
  questions = distinct(flatten([for q in local.posts : [for p in values(q) : p if p != null]]))

  unknown_calls = flatten([
    for i, q in local.filled : [
      for type, names in local.calls[i] : concat(
        [for name in names : "queues.yaml: queue ${q.id}: handlers.${type}.calls: no target has the name ${name}" if !contains(keys(local.targets), name)],
        length(distinct(names)) == length(names) ? [] : ["queues.yaml: queue ${q.id}: handlers.${type}.calls: lists a target twice"],
        length(names) == 0 || local.posts[i][type] == null ? [] : ["queues.yaml: queue ${q.id}: handlers.${type}.calls: a post calls its target alone"],
      )
    ]
  ])

  post_path = "^(/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}){1,9}$"

  target_mistakes = concat(
    local.unknown_calls,
    flatten([
      for name, t in local.targets : [
        for rule in [
          { ok = can(regex("^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$", name)), what = "name: must be at most 40 of a-z, 0-9 and -" },
          { ok = t.description != "", what = "description: is missing" },
          { ok = can(regex("^[A-Z][A-Z0-9_]{1,50}_URL$", t.url_variable)) && !contains(["ALARM_URL", "PUSH_BASE_URL"], t.url_variable), what = "url_variable: must be an environment variable that ends with _URL, and none of the programs' own" },
          { ok = can(regex("^[A-Z][A-Z0-9_]{1,50}_SECRET$", t.secret_variable)), what = "secret_variable: must be an environment variable that ends with _SECRET" },
          { ok = !startswith(t.secret_variable, "WEBHOOK_"), what = "secret_variable: must not begin with WEBHOOK_: who receives could sign as a sender" },
          { ok = contains(["generic", "standard"], t.scheme), what = "scheme: must be generic or standard" },
          { ok = tonumber(trimsuffix(t.timeouts.connect, "s")) > 0 && tonumber(trimsuffix(t.timeouts.connect, "s")) <= tonumber(trimsuffix(t.timeouts.total, "s")), what = "timeouts.connect: must be above 0 and at most timeouts.total" },
          { ok = tonumber(trimsuffix(t.timeouts.total, "s")) < 600, what = "timeouts.total: must be below 600s, the longest ack deadline" },
          { ok = 0 <= t.concurrency && t.concurrency <= 1000, what = "concurrency: must be 0, which is no limit, to 1000" },
          { ok = 0 <= t.rate_per_second && t.rate_per_second <= 1000000, what = "rate_per_second: must be 0, which is no limit, to 1000000" },
          { ok = (t.rate_per_second > 0) == (t.burst > 0) && 0 <= t.burst && t.burst <= 1000000, what = "burst: must be 1 to 1000000 where rate_per_second is above 0, and only there" },
          { ok = 0 <= t.breaker.failures && t.breaker.failures <= 1000, what = "breaker.failures: must be 0, which is any number, to 1000" },
          { ok = (t.breaker.failures > 0) == (t.breaker.rest != "0s") && tonumber(trimsuffix(t.breaker.rest, "s")) <= 86400, what = "breaker.rest: must be above 0s and at most 86400s where failures is above 0, and only there" },
          { ok = alltrue([for n in local.target_counts[name] : n == floor(n)]), what = "concurrency, burst and breaker.failures: must be whole numbers" },
          { ok = alltrue([for d in local.target_durations[name] : can(regex(local.seconds_pattern, d))]), what = "timeouts and breaker.rest: must be durations in seconds, such as \"600s\"" },
          { ok = length(setsubtract(keys(local.posted[name]), keys(t))) + length(setsubtract(try(keys(local.posted[name].timeouts), []), keys(t.timeouts))) + length(setsubtract(try(keys(local.posted[name].breaker), []), keys(t.breaker))) == 0, what = "has a key that is not known" },
        ] : "targets.yaml: target ${name}: ${rule.what}" if !rule.ok
      ]
    ]),
    [
      for rule in local.registered == {} ? [] : [
        { ok = tonumber(trimsuffix(local.endpoints.timeouts.connect, "s")) > 0 && tonumber(trimsuffix(local.endpoints.timeouts.connect, "s")) <= tonumber(trimsuffix(local.endpoints.timeouts.total, "s")), what = "timeouts.connect: must be above 0 and at most timeouts.total" },
        { ok = 1 <= local.endpoints.remembered && local.endpoints.remembered <= 1000000, what = "remembered: must be 1 to 1000000" },
        { ok = 3600 <= tonumber(trimsuffix(local.endpoints.disable_after, "s")) && tonumber(trimsuffix(local.endpoints.disable_after, "s")) <= 7776000, what = "disable_after: must be 3600s to 7776000s" },
        { ok = 60 <= tonumber(trimsuffix(local.endpoints.old_secret_for, "s")) && tonumber(trimsuffix(local.endpoints.old_secret_for, "s")) <= 2592000, what = "old_secret_for: must be 60s to 2592000s" },
        { ok = length(setsubtract(keys(local.registered), keys(local.endpoints))) == 0, what = "has a key that is not known" },
      ] : "targets.yaml: endpoints: ${rule.what}" if !rule.ok
    ],
    flatten([
      for i, q in local.filled : [
        for type, p in local.posts[i] : [
          for rule in p == null ? [] : [
            { ok = contains(keys(local.targets), p.target), what = "target: no target has the name ${p.target}" },
            { ok = can(regex(local.post_path, p.path)), what = "path: must be / and a segment of letters, digits and _ . -, up to nine times" },
            { ok = p.reconcile == "" || (can(regex("/[{]id[}](/|$)", p.reconcile)) && can(regex(local.post_path, replace(p.reconcile, "/{id}", "")))), what = "reconcile: must be a path like that, with {id} for one segment that is not its first" },
            { ok = contains(["", "bulk", "ndjson"], p.form), what = "form: must be bulk or ndjson, or left out" },
            { ok = p.form == "" || can(q.batch), what = "form: is that of a batch, and the queue has none" },
            { ok = p.form != "bulk" || length(q.ordering_key) > 0, what = "form: a bulk names documents by the ordering key, and the queue has none" },
            { ok = p.form == "" || p.reconcile == "", what = "reconcile: a batch is not asked about: the target applies the same line once" },
            { ok = length(local.emits[i][type]) == 0, what = "a post emits nothing" },
            { ok = length([for other in local.questions : other if other.target == p.target && other.path == p.path]) == 1, what = "reconcile: must be the same in every entry that posts to this path, and so must the form" },
            { ok = !can(q.handlers[type].name), what = "stands in the place of name, not beside it" },
            { ok = length(setsubtract(keys(q.handlers[type].post), keys(p))) == 0, what = "has a key that is not known" },
          ] : "queues.yaml: queue ${q.id}: handlers.${type}.post: ${rule.what}" if !rule.ok
        ]
      ]
    ]),
  )
}
