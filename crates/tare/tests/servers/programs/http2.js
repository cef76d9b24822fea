// HTTP/2, with TLS or without: answers with the number of bytes that it received.
const fs = require('fs');
const http2 = require('http2');

function answer(stream) {
    let bytes = 0;
    stream.on('data', (piece) => { bytes += piece.length; });
    stream.on('error', () => {});
    stream.on('end', () => {
        stream.respond({ ':status': 200, 'content-type': 'text/plain' });
        stream.end(`received ${bytes}`);
    });
}

const [port, tls] = process.argv.slice(2);
const server = tls === 'true'
    ? http2.createSecureServer({ key: fs.readFileSync('key.pem'), cert: fs.readFileSync('cert.pem') })
    : http2.createServer();
server.on('stream', answer).listen(Number(port), '127.0.0.1');
