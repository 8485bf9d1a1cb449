<?php
// request: GET {self}?a=\xff
// status: any
echo $_SERVER['QUERY_STRING'];
