"""Wire types of the objects that Muster watches, reduced to the needed fields.

Unknown fields are skipped while decoding, so a pod costs microseconds. All Structs are frozen and free of
reference cycles (`gc=False`), so a full garbage collection over 100,000 of them takes only milliseconds.
"""
