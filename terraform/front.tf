# The owner's domain in front of the webhook service, where front is set.

locals {
  # The webhook service's own address is closed once senders use the domain: what the front refuses would come in there.
  behind_front    = var.front != null && !try(var.front.direct, false)
  webhook_ingress = local.behind_front ? "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER" : "INGRESS_TRAFFIC_ALL"
  webhook_url     = local.behind_front ? "https://${var.front.domains[0]}" : "https://${local.webhook_name}-${local.number}.${var.region}.run.app"
}

module "front" {
  source     = "./modules/front"
  count      = var.front != null && local.deployed ? 1 : 0
  project_id = var.project_id
  region     = var.region
  name       = local.name
  service    = module.webhook[0].name
  domains    = var.front.domains
  rate       = var.front.rate
  senders    = var.front.senders
  watch      = var.front.watch
  log_share  = var.front.log_share
  labels     = local.labels

  depends_on = [google_project_service.optional]
}
