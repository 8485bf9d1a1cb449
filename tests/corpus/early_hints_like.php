<?php
// request: GET {self}
// status: 200
// expect: final
header('Link: </style.css>; rel=preload; as=style');
echo 'final';
