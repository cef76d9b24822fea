// Answers a small JSON text; with "more" it parses a list before.
const http = require('http');
const more = process.argv[3] === 'more';
const body = JSON.stringify({ hello: 'world', pad: 'x'.repeat(100) });
const list = JSON.stringify(Array.from({ length: 120 }, (_, id) => ({ id, name: 'item ' + id })));
http.createServer((request, reply) => {
    if (more) JSON.parse(list);
    reply.setHeader('content-type', 'application/json');
    reply.end(body);
}).listen(+process.argv[2], '127.0.0.1');
