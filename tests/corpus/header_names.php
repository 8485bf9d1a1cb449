<?php
// request: GET {self}
// header: X_Under_Score: 1
// header: X-Under-Score: 2
// header: X.Dot: 3
// header: X!Bang: 4
// header: X-9: 5
// header: X--Double: 6
// expect: "HTTP_X_UNDER_SCORE": "2"
// request: GET {self}
// header: Content_Length: 77
// header: Content_Type: text/evil
// expect: HTTP_HOST
require 'dump.inc';
dump(array_filter($_SERVER, fn ($name) => str_starts_with($name, 'HTTP_') || str_starts_with($name, 'CONTENT'), ARRAY_FILTER_USE_KEY));
