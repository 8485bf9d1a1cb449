<?php
// request: GET {self}
// expect: corpus root
echo 'corpus root ', getcwd() === __DIR__ ? 'same' : getcwd(), ' ', $_SERVER['DOCUMENT_ROOT'] === __DIR__ ? 'root' : 'other';
