# A budget tells, and stops nothing. It is of the whole project: some of what this costs has no labels.

resource "google_billing_budget" "project" {
  count           = var.budget == null ? 0 : 1
  billing_account = var.budget.billing_account
  display_name    = "${local.name}: ${var.project_id}"

  budget_filter {
    projects        = ["projects/${local.number}"]
    calendar_period = "MONTH"
  }

  amount {
    specified_amount {
      currency_code = var.budget.currency
      units         = tostring(var.budget.amount)
    }
  }

  dynamic "threshold_rules" {
    for_each = var.budget.shares
    content {
      threshold_percent = threshold_rules.value
    }
  }

  # Before it is spent.
  threshold_rules {
    threshold_percent = 1
    spend_basis       = "FORECASTED_SPEND"
  }

  dynamic "all_updates_rule" {
    for_each = length(var.budget.channels) == 0 ? [] : [true]
    content {
      monitoring_notification_channels = var.budget.channels
      disable_default_iam_recipients   = true
    }
  }

  depends_on = [google_project_service.optional]
}
