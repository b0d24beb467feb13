"""Topics on a Kafka broker, read by librdkafka: ranges of offsets, no group joined, nothing committed.

connection   how the broker is reached: TiCDC's sink URI and TOML, the user's settings -> librdkafka's options
reader       the ends of the log, its ranges as batches of messages, and errors with the setting to look at
"""
