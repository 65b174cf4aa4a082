# One dashboard: the services first, then a row for each queue.

locals {
  tile_width  = 12
  tile_height = 12

  service_tiles = [
    { title = "Webhooks by answer", filter = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_count\"", align = "ALIGN_RATE", reduce = "REDUCE_SUM", by = ["metric.label.response_code_class"] },
    { title = "Webhooks: p95 latency", filter = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_latencies\"", align = "ALIGN_PERCENTILE_95", reduce = "REDUCE_MAX", by = [] },
    { title = "Instances", filter = "resource.type = \"cloud_run_revision\" AND metric.type = \"run.googleapis.com/container/instance_count\" AND resource.labels.service_name = one_of(${join(", ", [for name in values(local.service_names) : jsonencode(name)])})", align = "ALIGN_MAX", reduce = "REDUCE_SUM", by = ["resource.label.service_name"] },
    { title = "Oldest in outbox and waits", filter = local.logged["oldest-seconds"], align = "ALIGN_DELTA", reduce = "REDUCE_MEAN", by = ["metric.label.task"] },
  ]

  queue_tiles = [
    for id, q in local.enabled : concat([
      { title = "${id}: messages waiting", filter = "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/num_undelivered_messages\"", align = "ALIGN_MAX", reduce = "REDUCE_SUM", by = [] },
      { title = "${id}: oldest message", filter = "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/oldest_unacked_message_age\"", align = "ALIGN_MAX", reduce = "REDUCE_MAX", by = [] },
      { title = "${id}: pushes by answer", filter = "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/push_request_count\"", align = "ALIGN_RATE", reduce = "REDUCE_SUM", by = ["metric.label.response_class"] },
      ], q.dead_letter.drop ? [] : [
      { title = "${id}: open dead letters", filter = "${local.logged["open-dead-letters"]} AND metric.labels.queue = \"${id}\"", align = "ALIGN_DELTA", reduce = "REDUCE_MEAN", by = [] },
    ])
  ]
}

resource "google_monitoring_dashboard" "this" {
  project = var.project_id
  dashboard_json = jsonencode({
    displayName = "Billhook (${local.name})"
    mosaicLayout = {
      columns = 4 * local.tile_width
      tiles = flatten([
        for row, tiles in concat([local.service_tiles], local.queue_tiles) : [
          for column, tile in tiles : {
            xPos   = column * local.tile_width
            yPos   = row * local.tile_height
            width  = local.tile_width
            height = local.tile_height
            widget = {
              title = tile.title
              xyChart = {
                dataSets = [{
                  plotType   = "LINE"
                  targetAxis = "Y1"
                  timeSeriesQuery = {
                    timeSeriesFilter = {
                      filter = tile.filter
                      aggregation = {
                        alignmentPeriod    = "60s"
                        perSeriesAligner   = tile.align
                        crossSeriesReducer = tile.reduce
                        groupByFields      = tile.by
                      }
                    }
                  }
                }]
              }
            }
          }
        ]
      ])
    }
  })

  depends_on = [google_project_service.api]
}
