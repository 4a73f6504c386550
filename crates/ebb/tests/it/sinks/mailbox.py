"""A mail server that prints every mail it accepts, taken apart by Python's own parser. Prints its port first, ends with its
standard input. Refuses recipients nobody@… for good and busy@… for now.

usage: mailbox.py plain|starttls|implicit [CERTIFICATE_AND_KEY [USER PASSWORD]]
"""
import asyncio
import email
import email.policy
import functools
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult

mode, *rest = sys.argv[1:]
context = None
if rest:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(rest[0])
login = rest[1:]


class Mailbox:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody@"):
            return f"550 5.1.1 <{address}>: no such user"
        if address.startswith("busy@"):
            return "451 4.3.0 try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        part = lambda kind: mail.get_body((kind,)).get_content().replace("\r\n", "\n")
        said = {
            "from": mail["from"],
            "to": mail["to"],
            "cc": mail["cc"],
            "bcc": mail["bcc"],
            "reply_to": mail["reply-to"],
            "subject": mail["subject"],
            "message_id": mail["message-id"],
            "auto": mail["auto-submitted"],
            "text": part("plain"),
            "html": part("html"),
            "recipients": envelope.rcpt_tos,
            "sender": envelope.mail_from,
            "tls": session.ssl is not None or mode == "implicit",
            "user": session.auth_data.decode() if session.auth_data else None,
            "peer": session.peer[1],
        }
        print(json.dumps(said), flush=True)
        return "250 2.0.0 Ok: queued"


def check(server, session, envelope, mechanism, data):
    if [data.login.decode(), data.password.decode()] == login:
        return AuthResult(success=True, auth_data=data.login)
    return AuthResult(success=False, handled=False)


async def serve():
    server = functools.partial(
        SMTP,
        Mailbox(),
        hostname="localhost",
        tls_context=context if mode == "starttls" else None,
        require_starttls=mode == "starttls",
        authenticator=check if login else None,
        auth_required=bool(login),
        auth_require_tls=False,
    )
    implicit = context if mode == "implicit" else None
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, ssl=implicit)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


asyncio.run(serve())
