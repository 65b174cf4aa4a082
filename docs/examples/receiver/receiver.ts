// Says whether a delivery of Billhook is genuine: the body on standard input, its two headers as arguments.
//
//     DELIVERY_SIGNING_SECRET=... node receiver.ts <X-Webhook-Timestamp> <X-Webhook-Signature> < body

import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";

// genuine: the headers are those of the body, as it came, byte for byte, at most five minutes ago.
function genuine(timestamp: string, signature: string, body: Buffer, secret: string, now: number): boolean {
  if (!/^[0-9]{1,12}$/.test(timestamp) || Math.abs(now / 1000 - Number(timestamp)) > 300) {
    return false;
  }
  const expected = createHmac("sha256", secret).update(`${timestamp}.`).update(body).digest();
  const given = Buffer.from(signature, "hex");
  return given.length === expected.length && timingSafeEqual(given, expected);
}

const [timestamp = "", signature = ""] = process.argv.slice(2);
process.exitCode = genuine(timestamp, signature, readFileSync(0), process.env.DELIVERY_SIGNING_SECRET ?? "", Date.now()) ? 0 : 1;
