// Puts one message on a queue of Billhook: it signs the message, and sends the same text until it is
// accepted. It needs Node 18 and no packages; Node 22.18 and later run this file as it is.
//
//     BILLHOOK_URL=http://127.0.0.1:8080 WEBHOOK_SIGNING_SECRET=... node producer.ts <subscription> <quantity>

import { createHmac, randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";

const attempts = 10;
const firstWait = 500; // milliseconds
const mostWait = 30_000;

interface Message {
  id: string;
  type: string;
  timestamp: string;
  version: number;
  data: Record<string, unknown>;
}

interface Answer {
  // status is 0 where there was no answer.
  status: number;
  // after is how many milliseconds the webhook service asks to wait.
  after: number;
  text: string;
}

// send puts a message on a queue and returns the webhook service's answer. An error means that the message was
// refused, or that it is still to be sent, under the same id.
async function send(queue: string, message: Message): Promise<string> {
  const body = JSON.stringify(message); // every attempt sends this text
  for (let attempt = 1, wait = firstWait; ; attempt++, wait = Math.min(2 * wait, mostWait)) {
    const { status, after, text } = await post(queue, body);
    if (status === 202) {
      return text;
    }
    if (status > 0 && status < 500 && status !== 429) {
      throw new Error(`refused with ${status}, and would be again: ${text}`);
    }
    if (attempt === attempts) {
      throw new Error(`not accepted in ${attempts} attempts, the last with ${status}: send it later`);
    }
    const pause = Math.max(after, wait * (0.5 + Math.random()));
    console.error(`attempt ${attempt}: ${status}; the next one in ${Math.round(pause)} ms`);
    await setTimeout(pause);
  }
}

// post signs a body and posts it once.
async function post(queue: string, body: string): Promise<Answer> {
  const base = process.env.BILLHOOK_URL ?? "http://127.0.0.1:8080";
  const secret = process.env.WEBHOOK_SIGNING_SECRET ?? "";
  // Each attempt is signed anew: the webhook service refuses a signature that is older than five minutes.
  const timestamp = Math.floor(Date.now() / 1000).toString();
  // With the path in it, the signature holds for this queue alone.
  const path = `/queues/${encodeURIComponent(queue)}/messages`;
  const signature = createHmac("sha256", secret).update(`${timestamp}.${path}.${body}`).digest("hex");
  try {
    const response = await fetch(base + path, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        "X-Webhook-Timestamp": timestamp,
        "X-Webhook-Destination": path,
        "X-Webhook-Signature": signature,
      },
      body,
      signal: AbortSignal.timeout(30_000),
    });
    const after = 1000 * (Number(response.headers.get("Retry-After")) || 0);
    return { status: response.status, after, text: await response.text() };
  } catch {
    return { status: 0, after: 0, text: "" };
  }
}

async function main([subscription, quantity]: string[]): Promise<void> {
  if (subscription === undefined || quantity === undefined) {
    throw new Error("usage: producer.ts <subscription> <quantity>");
  }
  const answer = await send("events-high", {
    // The id is made once, before the first attempt. A service that may restart between two
    // attempts stores it with what it is about.
    id: `usage-${randomUUID()}`,
    type: "usage_tracking",
    timestamp: new Date().toISOString(),
    version: 1,
    data: { subscription_id: subscription, meter: "calls", quantity: Number(quantity) },
  });
  console.log(answer);
}

main(process.argv.slice(2)).catch((error: Error) => {
  console.error(error.message);
  process.exitCode = 1;
});
