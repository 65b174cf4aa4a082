# One dashboard: the services first, then a row for each queue.

locals {
  tile = 12 # its width and its height

  service_tiles = [
    ["Webhooks by answer", local.requests, "ALIGN_RATE", "REDUCE_SUM", ["metric.label.response_code_class"]],
    ["Webhooks: p95 latency", replace(local.requests, "request_count", "request_latencies"), "ALIGN_PERCENTILE_95", "REDUCE_MAX", []],
    ["Instances", "${local.service}one_of(${join(", ", [for name in values(local.service_names) : jsonencode(name)])}) AND metric.type = \"run.googleapis.com/container/instance_count\"", "ALIGN_MAX", "REDUCE_SUM", ["resource.label.service_name"]],
    ["Oldest in outbox and waits", module.alerts.logged["oldest-seconds"], "ALIGN_DELTA", "REDUCE_MEAN", ["metric.label.task"]],
  ]
  queue_tiles = [
    for id, q in local.enabled : concat([
      for metric, tile in {
        num_undelivered_messages   = ["${id}: messages waiting", "ALIGN_MAX", "REDUCE_SUM", []]
        oldest_unacked_message_age = ["${id}: oldest message", "ALIGN_MAX", "REDUCE_MAX", []]
        push_request_count         = ["${id}: pushes by answer", "ALIGN_RATE", "REDUCE_SUM", ["metric.label.response_class"]]
      } : [tile[0], "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/${metric}\"", tile[1], tile[2], tile[3]]
      ], q.dead_letter.drop ? [] : [
      ["${id}: open dead letters", "${module.alerts.logged["open-dead-letters"]} AND metric.labels.queue = \"${id}\"", "ALIGN_DELTA", "REDUCE_MEAN", []],
    ])
  ]
}

resource "google_monitoring_dashboard" "this" {
  project = var.project_id
  dashboard_json = jsonencode({
    displayName = "Billhook (${local.name})"
    mosaicLayout = {
      columns = 4 * local.tile
      tiles = flatten([
        for row, tiles in concat([local.service_tiles], local.queue_tiles) : [
          for column, tile in tiles : {
            xPos = column * local.tile, yPos = row * local.tile, width = local.tile, height = local.tile
            widget = {
              title = tile[0]
              xyChart = { dataSets = [{
                plotType = "LINE", targetAxis = "Y1"
                timeSeriesQuery = { timeSeriesFilter = {
                  filter      = tile[1]
                  aggregation = { alignmentPeriod = "60s", perSeriesAligner = tile[2], crossSeriesReducer = tile[3], groupByFields = tile[4] }
                } }
              }] }
            }
          }
        ]
      ])
    }
  })
}
