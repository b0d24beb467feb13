"""TiCDC's Open Protocol: several row events a message, each column with MySQL's number of its type.

messages    batches of messages -> what they speak of, schemas, and changes
rows        row events -> images and cells
"""
