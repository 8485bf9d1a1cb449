<?php
// request: GET {self}
// status: 500
// log: PHP Parse error:
this is not PHP
