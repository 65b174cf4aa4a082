# This file is maintained automatically by "terraform init".
# Manual edits may be lost in future updates.

provider "registry.terraform.io/hashicorp/google" {
  version     = "7.45.0"
  constraints = ">= 7.32.0, < 8.0.0"
  hashes = [
    "h1:tadi6Bj0L/ALfpx6CNSVMmLr++uDQzSfDVOPidSdA+I=",
  ]
}
