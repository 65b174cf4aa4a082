"""Puts one message on a queue of Billhook: it signs the message, and sends the same bytes until they are
accepted. It needs Python 3.8 and nothing else.

    BILLHOOK_URL=http://127.0.0.1:8080 WEBHOOK_SIGNING_SECRET=... python3 producer.py <subscription> <quantity>
"""

import hashlib
import hmac
import http.client
import json
import os
import random
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from datetime import datetime, timezone

ATTEMPTS = 10
FIRST_WAIT, MOST_WAIT = 0.5, 30.0  # seconds


class NotSent(Exception):
    """The message was refused, or is still to be sent, under the same id."""


def send(queue, message):
    """Puts a message on a queue and returns the webhook service's answer."""
    body = json.dumps(message).encode()  # every attempt sends these bytes
    wait = FIRST_WAIT
    for attempt in range(1, ATTEMPTS + 1):
        status, after, answer = post(queue, body)
        if status == 202:
            return answer
        if 0 < status < 500 and status != 429:
            raise NotSent(f"refused with {status}, and would be again: {answer}")
        if attempt == ATTEMPTS:
            raise NotSent(f"not accepted in {ATTEMPTS} attempts, the last with {status}: send it later")
        pause = max(after, wait * random.uniform(0.5, 1.5))
        print(f"attempt {attempt}: {status}; the next one in {pause:.1f} s", file=sys.stderr)
        time.sleep(pause)
        wait = min(2 * wait, MOST_WAIT)


def post(queue, body):
    """Signs a body and posts it once. Returns the status, which is 0 where there was no answer, the
    seconds that the webhook service asks to wait, and the answer."""
    base = os.environ.get("BILLHOOK_URL", "http://127.0.0.1:8080")
    secret = os.environ["WEBHOOK_SIGNING_SECRET"].encode()
    # Each attempt is signed anew: the webhook service refuses a signature that is older than five minutes.
    timestamp = str(int(time.time()))
    # With the path in it, the signature holds for this queue alone.
    path = f"/queues/{urllib.parse.quote(queue, safe='')}/messages"
    signature = hmac.new(secret, f"{timestamp}.{path}.".encode() + body, hashlib.sha256).hexdigest()
    request = urllib.request.Request(
        base + path,
        data=body,
        headers={
            "Content-Type": "application/json",
            "X-Webhook-Timestamp": timestamp,
            "X-Webhook-Destination": path,
            "X-Webhook-Signature": signature,
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, 0, response.read().decode()
    except urllib.error.HTTPError as error:  # every status from 300 on
        after = error.headers.get("Retry-After", "")
        return error.code, int(after) if after.isdigit() else 0, error.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, 0, ""


def main(arguments):
    if len(arguments) != 2:
        raise NotSent("usage: producer.py <subscription> <quantity>")
    subscription, quantity = arguments
    message = {
        # The id is made once, before the first attempt. A service that may restart between two
        # attempts stores it with what it is about.
        "id": f"usage-{uuid.uuid4()}",
        "type": "usage_tracking",
        "timestamp": datetime.now(timezone.utc).isoformat(),
        "version": 1,
        "data": {"subscription_id": subscription, "meter": "calls", "quantity": int(quantity)},
    }
    print(send("events-high", message))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except NotSent as error:
        sys.exit(str(error))
