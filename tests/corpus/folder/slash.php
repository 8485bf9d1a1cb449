<?php
// request: GET /folder
// status: 301
// request: GET /folder?a=b
// status: 301
