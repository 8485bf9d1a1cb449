<?php
# A folder that has no index, and no listing.
// request: GET /folder/deeper/
// status: 403
// request: GET /folder/deeper
// status: 301
