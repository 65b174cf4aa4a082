"""Says whether a delivery of Billhook is genuine: the body on standard input, its two headers as arguments.

    DELIVERY_SIGNING_SECRET=... python3 receiver.py <X-Webhook-Timestamp> <X-Webhook-Signature> < body
"""

import hashlib
import hmac
import os
import sys
import time


def genuine(timestamp, signature, body, secret, now):
    """Whether the headers are those of the body, as it came, byte for byte, at most five minutes ago."""
    if not timestamp.isascii() or not timestamp.isdigit() or abs(now - int(timestamp)) > 300:
        return False
    expected = hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.encode())


if __name__ == "__main__":
    secret = os.environ["DELIVERY_SIGNING_SECRET"].encode()
    sys.exit(0 if genuine(sys.argv[1], sys.argv[2], sys.stdin.buffer.read(), secret, time.time()) else 1)
