# What every plan of the tests has: without it each of them would warn that nobody is told.
alerts = { channels = ["projects/example/notificationChannels/1"] }
