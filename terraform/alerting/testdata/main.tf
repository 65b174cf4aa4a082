# This calls the modules as the root does; neither needs a provider.
variable "tasks" { type = set(string) }
variable "queues" { default = [] }
variable "on" { default = [] }
module "catalog" {
  source    = "../../modules/catalog"
  directory = "../../../catalog"
  queues    = var.queues
}
module "alerts" {
  source  = "../../modules/alerts"
  tasks   = var.tasks
  asked   = { on = var.on }
  sources = [for name, s in module.catalog.sources : name if s.sends]
  queues  = { for id, q in module.catalog.queues : id => q if q.enabled }
  names = {
    installation = "billhook", database = "billhook", webhook = "billhook-webhook"
    tasks_worker = "billhook-worker-${module.catalog.tasks_pool}"
    slo          = "projects/1/services/billhook-webhook/serviceLevelObjectives/billhook-webhooks-taken"
  }
  scaling = merge(
    { "billhook-webhook" = { min = 1, max = 10 } },
    { for pool, p in module.catalog.pools : "billhook-worker-${pool}" => { min = 0, max = p.max_instances } },
  )
}
output "policies" { value = module.alerts.policies }
