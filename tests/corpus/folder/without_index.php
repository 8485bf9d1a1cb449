<?php
# A folder that has no index, and no listing.
// request: GET /folder/deeper/
// status: any
// request: GET /folder/deeper
// status: any
