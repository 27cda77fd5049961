"""What the scaler shows: ``/metrics``, health, ``/decisions`` and the page.

Everything is read from the published decisions; nothing here changes one, and no request starts a
scrape.
"""

import os

# prometheus_client picks its multiprocess mode by this variable when it is first imported, and then
# writes .db files. vLLM's own deployments set it; this process is one, on a read-only root (P12).
os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
os.environ.pop("prometheus_multiproc_dir", None)  # the older spelling
