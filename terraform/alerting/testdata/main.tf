# This calls the modules as the root does; neither needs a provider.
variable "tasks" { type = set(string) }
variable "queues" { type = list(string) }
variable "kept" { type = list(string) }
variable "thresholds" { type = any }
module "catalog" {
  source    = "../../modules/catalog"
  directory = "../../../catalog"
  queues    = var.queues
}
module "alerts" {
  source       = "../../modules/alerts"
  name         = "billhook"
  database     = "billhook"
  webhook      = "billhook-webhook"
  tasks_worker = "billhook-worker-${module.catalog.tasks_pool}"
  tasks        = var.tasks
  thresholds   = var.thresholds
  sources      = keys(module.catalog.sources)
  queues       = { for id, q in module.catalog.queues : id => q if q.enabled && !contains(var.kept, id) }
  kept         = { for id, q in module.catalog.queues : id => q if contains(var.kept, id) }
  slo          = "projects/1/services/billhook-webhook/serviceLevelObjectives/billhook-webhooks-taken"
  scaling = merge(
    { "billhook-webhook" = { min = 1, max = 10 } },
    { for pool, p in module.catalog.pools : "billhook-worker-${pool}" => { min = 0, max = p.max_instances } },
  )
}
output "policies" { value = module.alerts.policies }
output "log_metrics" { value = module.alerts.log_metrics }
