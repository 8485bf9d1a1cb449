<?php
// request: GET {self}
// expect: 22
// request: GET {self}
// expect: 22
echo decoct(umask());
umask(0);
